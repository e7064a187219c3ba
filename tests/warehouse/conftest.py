"""A small data folder that looks like a real one: two models on two benchmarks, written as the contracts say."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from ledger_lines import append_line, describe_file, explain_files
from made_rows import make_table

from audit_pipeline.benchmarks.built_benchmark import SPLIT_VERSION
from audit_pipeline.pipeline.evaluate_pair import write_missing_answers
from audit_pipeline.pipeline.registry import build_warehouse, get_stage
from audit_pipeline.store.files import table_from_rows, write_json, write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import (
    BLIND_SCORES,
    DOCUMENTS,
    EVALUATIONS,
    EXAMPLES,
    OUTCOMES,
    SCORES,
    SPLIT_QUALITY,
    TOKEN_STATISTICS,
    Pair,
    PairStatus,
    canonical_json,
    digest,
    example_id,
    text_sha256,
)

Row = Mapping[str, object]

DAY = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
MODELS = {"tiny-125m": "f" * 40, "small <2b> $x$": "e" * 40}
BENCHMARKS = {"notes_32": ("notes", 32), "speeches_64": ("speeches", 64)}
DETECTORS: Sequence[tuple[str, Mapping[str, object], bool]] = (
    ("loss", {}, True),
    ("zlib", {}, True),
    *(("min_k", {"k": k / 10}, k == 2) for k in range(1, 11)),
    *(("min_k_plus_plus", {"k": k / 10}, k == 2) for k in range(1, 11)),
)
CONTROLS: Mapping[str, Mapping[str, float | None]] = {
    "notes_32": {"words": 0.512, "characters": 0.534, "length": 0.521, "dates": 0.876},
    "speeches_64": {"words": None, "characters": None, "length": None, "dates": None},
}
METRICS = ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr")
_NO_BYTES = {"status": "not_applicable", "reason": "the text has no bytes to compress"}
WORDS = ("query", "parser", "cache", "session", "handler", "warning", "option", "backend", "migration", "raises")


@dataclass
class Folder:
    """A data folder under construction; every ``write_*`` adds the lineage entry of what it wrote, as a run would."""

    paths: DataPaths
    seed: int = 7
    examples: dict[str, list[dict[str, object]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def words(self, n: int) -> str:
        return " ".join(self.random.choices(WORDS, k=n))

    def write_lineage(self, table: str, partition: str, run_id: str, finished: datetime, **columns: object) -> None:
        row = {
            "table": table,
            "partition": partition,
            "run_id": run_id,
            "asset_key": table,
            "code_version": "1",
            "data_version": digest(table, partition, run_id)[:16],
            "upstream": {f"examples/{partition.partition('|')[0]}": "abc"},
            "started_at": finished - timedelta(minutes=4),
            "finished_at": finished,
            "packages": {"torch": "2.13.0", "transformers": "5.23.0", "corpus-audit": "0.1.0"},
            **columns,
        }
        append_line(self.paths, {**row, **describe_file(self.paths, row)})

    def write_documents(self, source: str, n: int = 12, run_id: str = "run-docs") -> None:
        rows: list[Row] = []
        for index in range(n):
            text = self.words(300)
            rows.append(
                {
                    **{"document_id": f"{source}:project{index % 3}:{index}", "source": source, "text": text},
                    **{"collection": f"project{index % 3}", "group": f"{source}-{index}", "title": f"{source} {index}"},
                    **{"published": date(2019, 1, 1) if index % 2 else date(2025, 6, 1), "date_kind": "release"},
                    **{"retrieved_at": DAY, "language": "en", "licence": "BSD-3-Clause"},
                    **{"url": f"made-up:{source}/{index}", "sha256": text_sha256(text), "run_id": run_id},
                }
            )
        write_table(self.paths.documents(source), make_table(DOCUMENTS, rows))
        self.write_lineage("documents", source, run_id, DAY)

    def write_examples(
        self, benchmark: str, texts: Iterable[str] = (), n: int = 60, run_id: str = "run-examples"
    ) -> None:
        source, length = BENCHMARKS[benchmark]
        given = list(texts)
        rows: list[dict[str, object]] = []
        for index in range(n):
            document = f"{source}:project{index % 3}:{index % 12}"
            text = given[index] if index < len(given) else self.words(length)
            rows.append(
                {
                    **{"example_id": example_id(benchmark, document, f"{index} {text}"), "benchmark": benchmark},
                    **{"document_id": document, "text": text, "context": None, "label": index % 2},
                    **{"split": "calibration" if index % 5 == 4 else "evaluation", "words": length, "language": "en"},
                    **{"published": date(2019, 1, 1) if index % 2 else date(2025, 6, 1), "run_id": run_id},
                    **{"collection": f"project{index % 3}", "group": f"{source}-{index % 12}"},
                }
            )
        self.examples[benchmark] = rows
        self.rewrite_examples(benchmark)
        self.write_lineage("examples", benchmark, run_id, DAY, benchmark_digest=digest(benchmark))
        write_json(
            self.paths.benchmark_manifest(benchmark),
            {
                "benchmark": benchmark,
                "description": f"made-up {source}, old against new",
                "design": "temporal",
                "words": length,
                "digest": digest(benchmark),
                "spec": {"sources": [source], "member_before": "2022-01-01", "nonmember_from": "2025-01-01", "seed": 0},
                "counts": {"members": {"evaluation": n // 2}, "nonmembers": {"evaluation": n // 2}},
                "near_duplicates": {"pairs": 1},
                "checks": [
                    {
                        **{"name": "near_duplicates", "passed": False, "blocking": False, "counts": {"pairs": 1}},
                        **{"what": "texts of both sides that share half of their words", "offenders": []},
                    }
                ],
            },
        )

    def write_split_quality(
        self, benchmark: str, controls: Mapping[str, float | None], run_id: str = "run-quality", **lineage: object
    ) -> None:
        """The quality of a split: each control's AUROC (None: not read), and what goes with it."""
        read = {name: value for name, value in controls.items() if value is not None}
        worst = max(read, key=lambda name: read[name], default=None)
        given: list[tuple[str, str, str, float | None]] = [
            *(("blind_auroc", name, "both", value) for name, value in controls.items()),
            *([("worst_blind_auroc", worst, "both", read[worst])] if worst is not None else []),
            *(("ngram_overlap_mean", size, "nonmembers", share) for size, share in (("7", 0.111), ("13", 0.022))),
            ("near_duplicate_pairs", "all", "between", 3),
            ("near_duplicate_pairs", "one group", "members", 77),
            *(("language_mismatch", "all", side, share) for side, share in (("members", 0.055), ("nonmembers", 0.066))),
            *(("texts", "all", side, count) for side, count in (("members", 24), ("nonmembers", 24))),
            *(("groups", "all", side, count) for side, count in (("members", 6), ("nonmembers", 5))),
            ("uneven_collections", "all", "both", 1),
        ]
        rows: list[Row] = []
        for measure, part, side, value in given:
            row = {"benchmark": benchmark, "measure": measure, "part": part, "side": side, "value": value, "n": 48}
            row |= {"split_verdict": "undetermined", "run_id": run_id}
            if value is None:
                row["method"] = "not read: 48 texts, 200 needed"
            elif "blind" in measure:
                row |= {"ci_low": value - 0.08, "ci_high": value + 0.07, "verdict": "mild shift"}
            rows.append(row)
        write_table(self.paths.split_quality(benchmark), make_table(SPLIT_QUALITY, rows))
        blind = BLIND_SCORES.file_of(self.paths, benchmark)
        assert blind is not None
        write_table(blind, BLIND_SCORES.empty_table())
        columns = {"benchmark_digest": digest(benchmark), "code_version": SPLIT_VERSION, **lineage}
        for table in ("blind_scores", "split_quality"):
            self.write_lineage(table, benchmark, run_id, DAY, **columns)

    def rewrite_examples(self, benchmark: str) -> None:
        """The examples as they stand in ``examples`` now, and nothing else."""
        write_table(self.paths.examples(benchmark), table_from_rows(self.examples[benchmark], EXAMPLES))
        explain_files(self.paths)

    def write_audit(
        self,
        benchmark: str,
        model: str,
        run_id: str,
        finished: datetime,
        signal: float = 0.6,
        blind: float | None = 0.55,
    ) -> None:
        """Scores and evaluations of one pair, the members' scores shifted up by ``signal`` standard deviations."""
        scores: list[Row] = []
        evaluations: list[Row] = []
        of_run = {"model": model, "benchmark": benchmark, "run_id": run_id}
        for detector, parameters, is_default in DETECTORS:
            setting: dict[str, object] = {"detector": detector, "parameters": canonical_json(parameters)}
            setting["is_default"] = is_default
            known: list[tuple[int, float]] = []
            for index, example in enumerate(self.examples[benchmark]):
                skipped = index == 7 and detector == "zlib"
                score = self.random.gauss(signal * int(str(example["label"])), 1.0)
                if not skipped and example["split"] == "evaluation":
                    known.append((int(str(example["label"])), score))
                found = _NO_BYTES if skipped else {"score": score}
                scores.append({**of_run, **setting, "example_id": example["example_id"], **found})
            metrics = dict(zip(METRICS, (auroc(known), 0.1, 0.9), strict=True))
            if blind is not None:
                metrics["auroc_margin"] = auroc(known) - blind
            setting["n_not_scored"] = int(detector == "zlib")
            evaluations += [{**of_run, **setting, **_evaluation(*metric, known)} for metric in metrics.items()]
        control = {"detector": "blind_control", "parameters": "{}", "is_default": True}
        for metric, value in zip(METRICS, (blind, None if blind is None else 0.07, None), strict=True):
            evaluations.append({**of_run, **control, **_evaluation(metric, value, [(0, 0.0)] * 48)})
        partition = Pair(benchmark, model).partition
        for table, rows in ((SCORES, scores), (EVALUATIONS, evaluations)):
            write_table(self.paths.run_file(table.name, partition, run_id), make_table(table, rows))
            columns = {"code_version": get_stage(table.name).code_version, "model_fingerprint": MODELS[model]}
            columns |= {"tokenizer_fingerprint": "t" * 40, "benchmark_digest": digest(benchmark)}
            self.write_lineage(table.name, partition, run_id, finished, **columns)

    def write_token_statistics(self, model: str, texts: Sequence[str], part: str = "part-0") -> None:
        rows: list[Row] = []
        for text in texts:
            n = len(text.split())
            rows.append(
                {
                    **{"key": digest(model, text), "text_sha256": text_sha256(text)},
                    **{name: [0.5] * n for name in ("mean", "std", "max_logprob")},
                    **{name: list(range(n)) for name in ("token_id", "char_start", "char_end", "argmax_id", "rank")},
                    "logprob": [-float(index) for index in range(n)],
                }
            )
        folder = self.paths.token_statistics("base", MODELS[model])
        write_table(folder / f"{part}.parquet", table_from_rows(rows, TOKEN_STATISTICS))

    def write_outcome(
        self,
        benchmark: str,
        model: str,
        run_id: str,
        at: datetime,
        status: PairStatus = "failed",
        reason: str = "the device is gone",
        stage: str = "token_statistics",
    ) -> None:
        """An outcome as :func:`record_outcome` writes it, but at a given time."""
        pair = Pair(benchmark, model)
        row = {
            "table": OUTCOMES.name,
            "partition": pair.partition,
            "run_id": run_id,
            "stage": stage,
            "status": status,
            "reason": reason,
            "at": at,
        }
        append_line(self.paths, row)

    def write_card(self, model: str, fingerprint: str | None = None, first_loaded_at: datetime | None = None) -> None:
        fingerprint = fingerprint or MODELS[model]
        write_json(
            self.paths.model_card(fingerprint),
            {
                "fingerprint": fingerprint,
                "name": model,
                "resolved_from": f"models/{model}",
                "dtype": "float32",
                "attention": "eager",
                "tokenizer_fingerprint": "t" * 40,
                "start_token": "<|endoftext|>",
                "start_token_id": 0,
                "context_length": 2048,
                "vocab_size": 49152,
                "parameters": 134515008,
                "release_date": "2024-11-01",
                "training_cutoff": None,
                "first_loaded_at": first_loaded_at.isoformat(timespec="seconds") if first_loaded_at else None,
                "family": "made-up",
            },
        )


def _evaluation(metric: str, value: float | None, known: Sequence[tuple[int, float]]) -> Row:
    members = sum(label for label, _ in known)
    counts = {"n_members": members, "n_nonmembers": len(known) - members, "n_groups": 12}
    row = {**counts, "metric": metric, "value": value, "split_verdict": "undetermined"}
    if value is None:
        return {**row, "method": "not read: 60 texts, 200 needed"}
    interval = {"ci_low": max(0.0, value - 0.08), "ci_high": min(1.0, value + 0.07)}
    return {**row, **interval, "method": "bootstrap over 12 groups, 1000 resamples"}


def auroc(known: Sequence[tuple[int, float]]) -> float:
    """By counting pairs: the share in which the member scores higher."""
    members = [score for label, score in known if label == 1]
    others = [score for label, score in known if label == 0]
    return sum((a > b) + 0.5 * (a == b) for a in members for b in others) / (len(members) * len(others))


def write_config(folder: Path, models: Iterable[str] = MODELS, **benchmarks: Mapping[str, object]) -> Path:
    """models.yaml and benchmarks.yaml in ``folder``: the two benchmarks of this page, unless others are given."""
    folder.mkdir(parents=True, exist_ok=True)
    families = benchmarks or {source: temporal(source, length) for source, length in BENCHMARKS.values()}
    entries = {name: {"path": f"weights/{place}"} for place, name in enumerate(models)}
    for file, content in (("models", {"models": entries}), ("benchmarks", {"benchmarks": families})):
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / f"{file}.yaml").write_text(text, encoding="utf-8")
    return folder


def temporal(source: str, *words: int, **changes: object) -> dict[str, object]:
    """The entry of a family in benchmarks.yaml; its source has not been fetched, so that nobody knows its version."""
    return {
        "builder": "temporal",
        "description": f"made-up {source}, old against new",
        "sources": [f"{source}_elsewhere"],
        "member_before": date(2022, 1, 1),
        "nonmember_from": date(2025, 1, 1),
        "words": list(words),
        "windows_per_document": 2,
        "calibration_fraction": 0,
        "seed": 5,
        **changes,
    }


@pytest.fixture(scope="package", autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration that the environment names, for these tests alone: both models, both benchmarks."""
    folder = write_config(tmp_path_factory.mktemp("config"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CORPUS_AUDIT_CONFIG", str(folder))
        yield folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty data folder."""
    return Folder(DataPaths(tmp_path / "data"))


@pytest.fixture(scope="package")
def _audited_once(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = Folder(DataPaths(tmp_path_factory.mktemp("audited") / "data"))
    for source in ("notes", "speeches"):
        folder.write_documents(source)
    for benchmark in BENCHMARKS:
        folder.write_examples(benchmark)
        folder.write_split_quality(benchmark, CONTROLS[benchmark])
    for position, model in enumerate(MODELS):
        folder.write_card(model)
        folder.write_token_statistics(model, ["one two three", "four five"])
        for benchmark in BENCHMARKS:
            folder.write_audit(benchmark, model, f"run-{position}-{benchmark}", DAY + timedelta(hours=position))
    folder.write_audit("notes_32", "tiny-125m", "again-notes", DAY + timedelta(days=1), signal=1.0)
    write_missing_answers(folder.paths)
    return folder


@pytest.fixture
def audited(_audited_once: Folder, tmp_path: Path) -> Folder:
    """Two models on two benchmarks; the first pair has been audited twice. A copy of its own for every test."""
    shutil.copytree(_audited_once.paths.root, tmp_path / "data")
    return Folder(DataPaths(tmp_path / "data"), examples=deepcopy(_audited_once.examples))


@pytest.fixture(scope="package")
def warehouse(_audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of the audited folder, for tests that only read it."""
    root = tmp_path_factory.mktemp("warehouse") / "data"
    shutil.copytree(_audited_once.paths.root, root)
    return build_warehouse(DataPaths(root)).path


@pytest.fixture(scope="package")
def built(_audited_once: Folder, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The decided folder and its warehouse, for tests that only read it."""
    from .decided import decided_copy

    return decided_copy(_audited_once, tmp_path_factory.mktemp("decided") / "data")


@pytest.fixture
def decided(built: Folder, tmp_path: Path) -> Folder:
    """The audited folder with decisions and a second run of a pair, not built yet. A copy of its own for every test."""
    shutil.copytree(built.paths.root, tmp_path / "data", ignore=shutil.ignore_patterns("audit.duckdb*"))
    return Folder(DataPaths(tmp_path / "data"), examples=deepcopy(built.examples))
