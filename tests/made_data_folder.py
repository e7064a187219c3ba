"""A builder of data folders: made-up rows of declared tables as runs write them, each file with its ledger entry.

A test states only the columns that it is about. The declarations of the tables supply the other columns (made_rows.py).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import yaml
from ledger_lines import append_line, describe_file, explain_files
from made_rows import make_table
from made_settings import temporal

from audit_pipeline.benchmarks.built_benchmark import SPLIT_VERSION
from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.store.files import read_json, write_json, write_table
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import OUTCOMES, TABLES, Pair, PairStatus, Side, canonical_json, digest, text_sha256
from audit_pipeline.tables import example_id as compute_example_id
from audit_pipeline.warehouse.query import query_warehouse

Row = Mapping[str, Any]

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
    "speeches_64": dict.fromkeys(("words", "characters", "length", "dates")),
}
METRICS = ("auroc", "tpr_at_5_fpr", "fpr_at_95_tpr")
WORDS = ("query", "parser", "cache", "session", "handler", "warning", "option", "backend", "migration", "raises")
SEARCHED = {"prefix": 50, "suffix": 50, "stride": "coarse-to-fine"}
"""The settings of a search for passages, as in its ledger entry."""
COVERED = ("covered_at_0_001", "covered_at_0_01", "covered_at_0_1", "covered_at_0_5", "covered_by_first_choices")


@dataclass(frozen=True)
class Searched:
    """A document that was searched for passages: its row of ``document_memorisation``, and its windows."""

    row: Row
    windows: Sequence[Row]


@dataclass
class Folder:
    """A data folder under construction. Every ``write_*`` adds the ledger entry of what it wrote, as a run would."""

    paths: DataPaths
    seed: int = 7
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

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

    def write_rows(
        self, table: str, pair: Pair, run_id: str, finished: datetime, rows: Iterable[Row], **lineage: object
    ) -> None:
        """Write one run's rows of a table, with the columns of the pair and the run."""
        of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
        made = make_table(TABLES[table], [{**row, **of_run} for row in rows])
        write_table(self.paths.run_file(table, pair.partition, run_id), made)
        columns = {**describe_versions(pair), "asset_key": "evaluations", **lineage}
        self.write_lineage(table, pair.partition, run_id, finished, **columns)

    def write_file(self, table: str, partition: str, run_id: str, rows: Iterable[Row], **lineage: object) -> None:
        """Write the file of a partition that every run replaces."""
        file = TABLES[table].file_of(self.paths, partition)
        assert file is not None
        write_table(file, make_table(TABLES[table], rows))
        self.write_lineage(table, partition, run_id, DAY, **lineage)

    def write_documents(self, source: str, n: int = 12, run_id: str = "run-docs") -> None:
        rows: list[Row] = []
        for index in range(n):
            project, text = f"project{index % 3}", self.words(300)
            names = {"document_id": f"{source}:{project}:{index}", "source": source, "collection": project}
            titles = {"group": f"{source}-{index}", "title": f"{source} {index}", "licence": "BSD-3-Clause"}
            titles |= {"language": "en", "sha256": text_sha256(text)}
            rows.append({**names, **titles, "text": text, "published": _choose_date(index), "run_id": run_id})
        self.write_file("documents", source, run_id, rows)

    def write_examples(
        self, benchmark: str, texts: Sequence[str] = (), n: int = 60, run_id: str = "run-examples"
    ) -> None:
        source, length = BENCHMARKS[benchmark]
        rows: list[dict[str, Any]] = []
        for index in range(n):
            project = f"project{index % 3}"
            document = f"{source}:{project}:{index % 12}"
            text = texts[index] if index < len(texts) else self.words(length)
            names = {"example_id": compute_example_id(benchmark, document, f"{index} {text}"), "benchmark": benchmark}
            names |= {"document_id": document, "collection": project, "group": f"{source}-{index % 12}"}
            sides = {"split": "calibration" if index % 5 == 4 else "evaluation", "label": index % 2}
            sides |= {"published": _choose_date(index), "words": length, "language": "en", "context": None}
            rows.append({**names, **sides, "text": text, "run_id": run_id})
        near = {"name": "near_duplicates", "what": "texts of both sides that share half of their words"}
        manifest = {
            "description": f"made-up {source}, old against new",
            "design": "temporal",
            "spec": {"sources": [source], "member_before": "2022-01-01", "nonmember_from": "2025-01-01", "seed": 0},
            "counts": {"members": {"evaluation": n // 2}, "nonmembers": {"evaluation": n // 2}},
            "near_duplicates": {"pairs": 1},
            "checks": [{**near, "passed": False, "blocking": False, "counts": {"pairs": 1}, "offenders": []}],
        }
        self.write_benchmark(benchmark, rows, run_id, words=length, **manifest)

    def write_benchmark(self, benchmark: str, rows: list[dict[str, Any]], run_id: str, **manifest: object) -> None:
        """Write the examples and the manifest of a benchmark."""
        self.examples[benchmark] = rows
        self.write_file("examples", benchmark, run_id, rows, benchmark_digest=digest(benchmark))
        named = {"benchmark": benchmark, "digest": digest(benchmark)}
        write_json(self.paths.benchmark_manifest(benchmark), {**named, **manifest})

    def change_manifest(self, benchmark: str, **fields: object) -> None:
        manifest = self.paths.benchmark_manifest(benchmark)
        write_json(manifest, {**read_json(manifest), **fields})

    def rewrite_examples(self, benchmark: str) -> None:
        """Write the examples as they are in ``examples`` now."""
        write_table(self.paths.examples(benchmark), make_table(TABLES["examples"], self.examples[benchmark]))
        explain_files(self.paths)

    def write_split_quality(
        self, benchmark: str, controls: Mapping[str, float | None], run_id: str = "run-quality", **lineage: object
    ) -> None:
        """Write the quality of a split: the AUROC of each control (None: not computed), and other measures."""
        computed = {name: value for name, value in controls.items() if value is not None}
        worst = max(computed, key=lambda name: computed[name], default="")
        measured: list[tuple[str, str, str, float | None]] = [
            *(("blind_auroc", name, "both", value) for name, value in controls.items()),
            *(("worst_blind_auroc", name, "both", value) for name, value in computed.items() if name == worst),
            *(("ngram_overlap_mean", size, "nonmembers", share) for size, share in (("7", 0.111), ("13", 0.022))),
            ("near_duplicate_pairs", "all", "between", 3),
            ("near_duplicate_pairs", "one group", "members", 77),
            *(("language_mismatch", "all", side, share) for side, share in (("members", 0.055), ("nonmembers", 0.066))),
            *(("texts", "all", side, 24) for side in ("members", "nonmembers")),
            *(("groups", "all", side, count) for side, count in (("members", 6), ("nonmembers", 5))),
            ("uneven_collections", "all", "both", 1),
        ]
        rows: list[Row] = []
        for measure, part, side, value in measured:
            row = {"benchmark": benchmark, "measure": measure, "part": part, "side": side, "value": value, "n": 48}
            row |= {"split_verdict": "undetermined", "run_id": run_id}
            if value is None:
                row["method"] = "not read: 48 texts, 200 needed"
            elif "blind" in measure:
                row |= {"ci_low": value - 0.08, "ci_high": value + 0.07, "verdict": "mild shift"}
            rows.append(row)
        columns = {"benchmark_digest": digest(benchmark), "code_version": SPLIT_VERSION, **lineage}
        self.write_file("blind_scores", benchmark, run_id, [], **columns)
        self.write_file("split_quality", benchmark, run_id, rows, **columns)

    def write_audit(
        self, benchmark: str, model: str, run_id: str, at: datetime, signal: float = 0.6, blind: float | None = 0.55
    ) -> None:
        """Write scores and evaluations of a pair. The members' scores are ``signal`` standard deviations higher."""
        scores: list[Row] = []
        evaluations: list[Row] = []
        for detector, parameters, is_default in DETECTORS:
            setting = {"detector": detector, "parameters": canonical_json(parameters), "is_default": is_default}
            known: list[tuple[int, float]] = []
            for index, example in enumerate(self.examples[benchmark]):
                score = self.random.gauss(signal * example["label"], 1.0)
                found: Row = {"score": score}
                if index == 7 and detector == "zlib":
                    found = {"status": "not_applicable", "reason": "the text has no bytes to compress"}
                elif example["split"] == "evaluation":
                    known.append((example["label"], score))
                scores.append({**setting, "example_id": example["example_id"], **found})
            members = np.array([score for label, score in known if label])
            others = np.array([score for label, score in known if not label])
            area = float(np.mean(members[:, None] > others))
            metrics = dict(zip(METRICS, (area, 0.1, 0.9), strict=True))
            if blind is not None:
                metrics["auroc_margin"] = area - blind
            setting |= {"n_not_scored": int(detector == "zlib")}
            for metric, value in metrics.items():
                evaluations.append({**setting, **make_evaluation(metric, value, len(members), len(others))})
        control = {"detector": "blind_control", "is_default": True, "parameters": "{}"}
        for metric, value in zip(METRICS, (blind, blind and 0.07, None), strict=True):
            evaluations.append({**control, **make_evaluation(metric, value, 0, 48)})
        for table, rows in (("scores", scores), ("evaluations", evaluations)):
            code = {"asset_key": table, "code_version": get_stage(table).code_version}
            self.write_rows(table, Pair(benchmark, model), run_id, at, rows, **code)

    def write_token_statistics(self, model: str, texts: Iterable[str], part: str = "part-0") -> None:
        rows: list[Row] = []
        for text in texts:
            n = len(text.split())
            row = {name: list(range(n)) for name in ("token_id", "char_start", "char_end", "argmax_id", "rank")}
            floats = {name: [0.5] * n for name in ("mean", "std", "max_logprob")}
            keys = {"key": digest(model, text), "text_sha256": text_sha256(text)}
            rows.append({**row, **floats, **keys, "logprob": [-float(index) for index in range(n)]})
        file = self.paths.token_statistics("base", MODELS[model]) / f"{part}.parquet"
        write_table(file, make_table(TABLES["token_statistics"], rows))

    def write_outcome(
        self, pair: Pair, run_id: str, status: PairStatus, reason: str, stage: str = "token_statistics"
    ) -> None:
        """Write an outcome as :func:`record_outcome` does, two days after the first run."""
        row = {"table": OUTCOMES.name, "partition": pair.partition, "run_id": run_id, "stage": stage}
        append_line(self.paths, {**row, "status": status, "reason": reason, "at": DAY + timedelta(days=2)})

    def write_card(self, model: str, fingerprint: str | None = None, **fields: object) -> None:
        card = {
            "fingerprint": fingerprint or MODELS[model],
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
        }
        write_json(self.paths.model_card(str(card["fingerprint"])), {**card, **fields})

    def write_search(
        self,
        pair: Pair,
        run_id: str,
        finished: datetime,
        documents: Sequence[Searched],
        rates: Sequence[Row] = (),
        grid: Sequence[Row] = (),
        settings: Mapping[str, object] = SEARCHED,
        **lineage: object,
    ) -> None:
        """Write one run of a search for passages. The rates are those of all documents of a side, and ``rates``."""
        held_out = sum(document.row["side"] == "held_out" for document in documents)
        rows: list[Row] = []
        for document in documents:
            tested = document.windows and held_out and document.row["side"] == "audited"
            comparison = {"windows_compared": len(document.windows), "n_held_out": held_out}
            rows.append({**document.row, **(comparison | {"p_value": 1 / (held_out + 1)} if tested else {})})
        all_rates = list(rates)
        for side in ("audited", "held_out"):
            searched = [document.row for document in documents if document.row["side"] == side and document.windows]
            for covered, threshold in zip(COVERED if searched else (), (0.001, 0.01, 0.1, 0.5, None), strict=False):
                reached = sum(row[covered] > 0 for row in searched)
                all_rates.append(make_rate("benchmark", pair.benchmark, side, threshold, reached, len(searched)))
        columns = {"asset_key": "extraction", "settings": canonical_json(settings), **lineage}
        windows = [window for document in documents for window in document.windows]
        self.write_rows("extraction_windows", pair, run_id, finished, windows, **columns)
        self.write_rows("extraction_rates", pair, run_id, finished, all_rates, **columns)
        self.write_rows("document_memorisation", pair, run_id, finished, rows, **columns)
        if grid:
            columns["settings"] = canonical_json({**settings, "grid": True})
            self.write_rows("extraction_grid", pair, run_id, finished, grid, **columns)

    def write_plan(self, pair: Pair, run_id: str, at: datetime, **changes: Any) -> str:
        """Seal a plan that the folder's runs follow, except for ``changes``. Return the sha256 of the plan.

        ``authority`` and ``timestamped_at`` are the name and the time in the plan's timestamp.
        """
        stamp = {name: changes.pop(name) for name in ("authority", "timestamped_at") if name in changes}
        plan = canonical_json(
            {
                **{"benchmark": pair.benchmark, "model": pair.model, **describe_versions(pair)},
                **{"texts": [], "held_out": [], "threshold": 0.001, "alpha": 0.05, "seeds": {}, "code_digest": "c"},
                **{"extraction": SEARCHED, "headline": None, "detectors": [], "lineage_head": None},
                "code_versions": {"document_memorisation": "1", "scores": "1", "evaluations": "1"},
                "package_versions": {"torch": "2.13.0", "transformers": "5.23.0", "corpus-audit": "0.1.0"},
                **{"texts_in_cache": 0, "rows_forgotten": 0},
                **changes,
            }
        )
        row = {"plan": plan, "plan_sha256": text_sha256(plan), "sealed_at": at, **stamp}
        row["timestamp"] = "AA==" if stamp else None
        self.write_rows("plans", pair, run_id, at, [row], asset_key="plans")
        return text_sha256(plan)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement on the warehouse."""
        return [tuple(row.values()) for row in query_warehouse(self.paths.warehouse, sql).to_pylist()]


def describe_versions(pair: Pair) -> dict[str, Any]:
    """Return the digests in the ledger entries of a pair."""
    fingerprint = MODELS.get(pair.model) or digest("chat", pair.model)
    versions = {"model_fingerprint": fingerprint, "benchmark_digest": digest(pair.benchmark)}
    return versions | {"tokenizer_fingerprint": "t" * 40}


def make_evaluation(metric: str, value: float | None, n_members: int, n_nonmembers: int) -> dict[str, Any]:
    """Return a row of evaluations, without its detector, run and pair."""
    row = {"metric": metric, "value": value, "split_verdict": "undetermined"}
    row |= {"n_members": n_members, "n_nonmembers": n_nonmembers, "n_groups": 12}
    if value is None:
        return {**row, "method": "not read: 60 texts, 200 needed"}
    interval = {"ci_low": max(0.0, value - 0.08), "ci_high": min(1.0, value + 0.07)}
    return {**row, **interval, "method": "bootstrap over 12 groups, 1000 resamples"}


def make_window(begin: int, end: int, p: float, **columns: Any) -> dict[str, Any]:
    """Return a row of extraction_windows whose suffix begins and ends at these characters and has probability ``p``.

    ``reference`` and ``prior`` are the probabilities of reference_log_p and prior_log_p.
    """
    row = {"start": begin - 100, "suffix_begin": begin, "suffix_end": end, "tokens": 50, "is_coarse": True}
    row |= {"log_p": math.log(p), "log_p_top_40": math.log(p), "outside_top_40": 0, "first_choices": 20}
    for name in ("reference", "prior"):
        if name in columns:
            row[f"{name}_log_p"] = math.log(columns.pop(name))
    return {**row, **columns}


def make_searched(
    document_id: str, *windows: Row, covered: Sequence[float] = (0.0, 0.0, 0.0, 0.0, 0.0), **columns: object
) -> Searched:
    """Return a document with these windows. ``covered`` are its shares at the four thresholds and by first choices."""
    apart = [window["set_apart"] for window in windows if window.get("set_apart")]
    evidence = [window["log_p"] for window in windows if not window.get("set_apart")]
    reproduced = sum(log_p >= math.log(0.001) for log_p in evidence)
    row: dict[str, Any] = {"document_id": document_id, "side": "audited", "group": "group", "collection": "shelf"}
    row |= {"characters": 1000, "prefix_tokens": 50, "suffix_tokens": 50, "stride": "coarse-to-fine"}
    row |= {"windows": len(windows), "reproduced": reproduced, "set_apart": len(apart)}
    row |= {"predictable": apart.count("predictable"), "likely_anyway": apart.count("likely anyway")}
    row |= {"log_p": max(evidence, default=None), "reason": "it is shorter than a window"}
    if windows:
        row |= {**dict(zip(COVERED, covered, strict=True)), "covered_set_apart": 0.02, "reason": None}
        row["claim"] = "reproduced" if reproduced else "not reproduced"
    row.update(columns)
    row["longest_run_words"] = row.get("longest_run", 0) // 6
    return Searched(row, [{**window, "document_id": document_id} for window in windows])


def make_grid_row(
    document_id: str, side: Side, prefix_tokens: int, suffix_tokens: int, p: float, **columns: object
) -> Row:
    """Return a row of extraction_grid of two suffixes, the likelier of which has probability ``p``."""
    row = {"document_id": document_id, "side": side, "prefix_tokens": prefix_tokens, "suffix_tokens": suffix_tokens}
    row |= {"temperature": 1.0, "drawn_from": "top-k 40", "places": 2, "reached": int(p >= 0.001), "start": 0}
    return {**row, "log_p": math.log(p), **columns}


def make_rate(unit: str, name: str, side: str, threshold: float | None, n_reached: int, documents: int) -> Row:
    """Return a row of extraction_rates with an interval of ten percentage points on either side."""
    share = n_reached / documents
    row = {"unit": unit, "name": name, "side": side, "threshold": threshold, "n_documents": documents}
    row |= {"rule": "first_choices" if threshold is None else "probability", "characters": 1000 * documents}
    row |= {"covered": share / 10, "covered_low": share / 20, "covered_high": share / 5, "n_reached": n_reached}
    row |= {"reached": share, "reached_low": max(0.0, share - 0.1), "reached_high": min(1.0, share + 0.1)}
    return {**row, "median_log_p": math.log(0.001) * (1 + documents - n_reached)}


def write_config(
    folder: Path,
    models: Iterable[str] = MODELS,
    fields: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    **benchmarks: Mapping[str, object],
) -> Path:
    """Write models.yaml and benchmarks.yaml, by default with the benchmarks of this module.

    ``fields`` are more fields of models, or more models.
    """
    folder.mkdir(parents=True, exist_ok=True)
    families = benchmarks or {source: make_family(source, length) for source, length in BENCHMARKS.values()}
    entries: dict[str, dict[str, object]] = {name: {"path": f"weights/{place}"} for place, name in enumerate(models)}
    for name, more in fields.items():
        entries.setdefault(name, {}).update(more)
    for file, content in (("models", {"models": entries}), ("benchmarks", {"benchmarks": families})):
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
        (folder / f"{file}.yaml").write_text(text, encoding="utf-8")
    return folder


def make_family(source: str, *words: int, **changes: object) -> dict[str, object]:
    """Return a family of benchmarks.yaml. Its source was never fetched, so its version is unknown."""
    own = {"description": f"made-up {source}, old against new", "sources": [f"{source}_elsewhere"]}
    return temporal(list(words), **{**own, **changes})


def _choose_date(index: int) -> date:
    return date(2019, 1, 1) if index % 2 else date(2025, 6, 1)
