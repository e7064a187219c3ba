"""Flipped bits in every kind of file that numbers come from. No flip changes a number unnoticed.

A flip changes one bit of one file. The reader then raises an error, skips and reports the file, sets it aside so that
its texts run again, or returns the values from before.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from made_rows import make_table
from made_workspace import SOURCE, Workspace, made_documents, make_workspace, quick_folder, temporal
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import SPLIT_VERSION, assess_split, read_built
from audit_pipeline.benchmarks.config import move_reference_day, read_stored_day
from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.extras.corpora.config import ReferenceEntry
from audit_pipeline.extras.corpora.frequency_need import build_frequencies, read_corpus_frequencies
from audit_pipeline.extras.extraction.pair_extraction import extract_pair
from audit_pipeline.models.tokenized_model import TokenizedModel, write_card
from audit_pipeline.pipeline.evaluate_pair import evaluate_pair
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.scoring.pair_scores import run_passes, score_and_store_pair
from audit_pipeline.store import store
from audit_pipeline.store.control_files import MANIFEST, TEXTS, read_control, read_control_texts
from audit_pipeline.store.files import read_json, write_json, write_table
from audit_pipeline.store.integrity import digests_of_folder
from audit_pipeline.store.ledger import LineageStep, read_ledger, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents
from audit_pipeline.tables import (
    CHAT_ANSWERS,
    CHAT_DOCUMENTS,
    CONTROL_STUDIES,
    CONTROL_TEXTS,
    PLANS,
    SCORES,
    TABLES,
    TWINS,
    UNLEARNING,
    Pair,
)
from audit_pipeline.token_statistics.cached_texts import read_branches, read_statistics
from audit_pipeline.warehouse.query import open_read_only

BENCHMARKS = ("made_8", "made_9")
PAIRS = tuple(Pair(benchmark, "tiny") for benchmark in BENCHMARKS)
CONTROL, STUDY = "made_control", "made_study"
FLIPS_A_READER, BUILDS = 12, 5
Read = Callable[[], object]


@dataclass(frozen=True)
class DataFolder:
    """A data folder with every kind of file, and the reader of each file."""

    paths: DataPaths
    model: TokenizedModel
    texts: list[str]

    @property
    def readers(self) -> Mapping[str, tuple[Path, Read]]:
        """A file, and the values that come of it."""
        paths, pair = self.paths, PAIRS[0]
        cache = paths.token_statistics("base", self.model.identity.model_fingerprint)
        branches = paths.token_statistics("branches", self.model.identity.model_fingerprint)
        control = paths.control_version(CONTROL, "v1")
        frequencies = paths.token_frequencies("notes", self.model.identity.tokenizer_fingerprint)
        return {
            "documents": (paths.documents(SOURCE), lambda: read_documents(paths, SOURCE).to_pylist()),
            "source manifest": (paths.source_manifest(SOURCE), lambda: read_json(paths.source_manifest(SOURCE))),
            "examples": (
                paths.examples(pair.benchmark),
                lambda: [*read_built(paths, pair.benchmark).examples.to_pylist()],
            ),
            "benchmark manifest": (
                paths.benchmark_manifest(pair.benchmark),
                lambda: {**read_built(paths, pair.benchmark).manifest},
            ),
            "token statistics": (self._part_of_texts(cache), lambda: self._cached(read_statistics)),
            "branches": (
                self._part_of_texts(branches),
                lambda: self._cached(lambda *given: read_branches(*given, 1)),
            ),
            "scores": (paths.run_file("scores", pair.partition, "run"), self._scores),
            "ledger": (next(paths.ledger.glob("*.jsonl")), lambda: read_whole_ledger(paths)),
            "token frequencies": (
                frequencies,
                lambda: [
                    one.tolist() if hasattr(one, "tolist") else one
                    for one in (self._frequencies()[0].counts, self._frequencies()[1])
                ],
            ),
            "control's texts": (control / TEXTS, lambda: read_control_texts(CONTROL, paths).to_pylist()),
            "control's manifest": (control / MANIFEST, lambda: read_control(CONTROL, paths)),
            "control's pointer": (paths.control_pointer(CONTROL), lambda: read_control(CONTROL, paths)),
            "rolled day": (paths.rolled_day, lambda: read_stored_day(paths)),
            "model's card": (
                paths.model_card(self.model.identity.model_fingerprint),
                lambda: read_json(paths.model_card(self.model.identity.model_fingerprint)),
            ),
        }

    def _cached(self, read: Callable[..., Any]) -> dict[str, object]:
        rows = read(self.model, self.texts, self.paths).to_pylist()
        return {row["text_sha256"]: row for row in rows}

    def _part_of_texts(self, cache: Path) -> Path:
        texts = {sha256(text.encode()).hexdigest() for text in self.texts}
        return next(
            part
            for part in sorted(cache.glob("part-*.parquet"))
            if texts & {*pq.read_table(part, columns=["text_sha256"], partitioning=None)["text_sha256"].to_pylist()}
        )

    def _scores(self) -> object:
        pair = PAIRS[0]
        return store.read(self.paths, SCORES, pair, run_id="run", label="the scores").to_pylist()

    def _frequencies(self) -> Any:
        return read_corpus_frequencies("notes", self.model, self.paths)


def read_whole_ledger(paths: DataPaths) -> object:
    ledger = read_ledger(paths)
    if ledger.problems:
        raise DataError(ledger.problems[0])
    return ledger.entries, ledger.outcomes


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Iterator[DataFolder]:
    with (
        pytest.MonkeyPatch.context() as patch,
        quick_folder(tmp_path_factory.mktemp("flips")) as folder,
    ):
        yield write_all_kinds(make_workspace(folder / "made", patch, tiny=tiny_folder("llama")))


def write_all_kinds(workspace: Workspace) -> DataFolder:
    """Write every kind of file with the code that normally writes it, except the control, which is not trained here."""
    paths, model = workspace.paths, workspace.model("tiny")
    workspace.write_benchmarks(made=temporal([8, 9]))
    workspace.fetch(*made_documents(1, 40))
    write_card(model, paths, parameters=1000)
    for spec, pair in zip(workspace.build("made"), PAIRS, strict=True):
        assess_split(read_built(paths, spec.name), paths, LineageStep.now("run", "split_quality", SPLIT_VERSION))
        step = LineageStep.now("run", "token_statistics", "1")
        run_passes(pair, model, paths, lambda: forward_of(model), step, kinds=("base",), logits_budget=0)
        extract_pair(
            pair,
            model,
            paths,
            forward_of,
            LineageStep.now("run", "extraction", "1"),
            ExtractionSettings(prefix=12, suffix=8),
        )
        score_and_store_pair(pair, model, paths, LineageStep.now("run", "scores", "1"))
        evaluate_pair(pair, model, paths, LineageStep.now("run", "evaluations", "1"))
        _write_findings(pair, paths)
    record_outcome(paths, PAIRS[0], "scores", "failed", "the device is gone", "failed")
    corpus = workspace.root / "corpus.txt"
    corpus.write_text("one text\nanother text\n")
    entry = ReferenceEntry(name="notes", path=corpus, language="en", licence="none")
    build_frequencies(entry, model, paths, LineageStep.now("run", "token_frequencies", "1"))
    _write_control(paths)
    move_reference_day(paths, date(2026, 3, 1))
    return DataFolder(paths, model, [row["text"] for row in read_built(paths, BENCHMARKS[0]).examples.to_pylist()])


def _write_findings(pair: Pair, paths: DataPaths) -> None:
    """Write one row of each table that commands beside the audit write for a pair."""
    of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": "run"}
    for table in (UNLEARNING, PLANS, CHAT_ANSWERS, CHAT_DOCUMENTS, TWINS):
        rows = make_table(table, [of_run])
        store.write(paths, LineageStep.now("run", table.name, "1"), table, pair, rows, upstream={})


def _write_control(paths: DataPaths) -> None:
    texts = [{"exposed": number, "text": f"text {number}"} for number in range(30)]
    folder = paths.control_version(CONTROL, "v1")
    write_table(folder / TEXTS, make_table(CONTROL_TEXTS, texts))
    manifest = {"control": CONTROL, "version": "v1", "files": digests_of_folder(folder), "losses": [3.25, 1.125]}
    write_json(folder / MANIFEST, manifest)
    write_json(paths.control_pointer(CONTROL), {"version": "v1"})
    rows = [{"study": STUDY, "value": str(value), "auroc": 0.5 + value / 100} for value in range(20)]
    step, table = LineageStep.now("run", "control_study", "1"), make_table(CONTROL_STUDIES, rows)
    store.write(paths, step, CONTROL_STUDIES, STUDY, table, data_version="v", upstream={})


def flip_bit(path: Path, chance: random.Random) -> bytes:
    """Flip one bit of the file, and return the previous content."""
    before = path.read_bytes()
    bit = chance.randrange(8 * len(before))
    after = bytearray(before)
    after[bit // 8] ^= 1 << bit % 8
    replace_file(path, bytes(after))
    return before


def replace_file(path: Path, content: bytes) -> None:
    """Write the content as a new file, so that no cached digest applies."""
    other = path.with_name(f"{path.name}.other")
    other.write_bytes(content)
    other.replace(path)
    path.with_suffix(".unreadable").unlink(missing_ok=True)


KINDS = (
    *("documents", "source manifest", "examples", "benchmark manifest", "token statistics", "branches", "scores"),
    *("ledger", "token frequencies", "control's texts", "control's manifest", "control's pointer"),
    *("rolled day", "model's card"),
)


@pytest.mark.usefixtures("one_thread", "quick_audits")
@pytest.mark.parametrize("kind", KINDS)
def test_no_reader_returns_another_number_after_a_flipped_bit(kept: DataFolder, kind: str) -> None:
    assert set(KINDS) == set(kept.readers)
    (path, read), chance = kept.readers[kind], random.Random(f"flips of {kind}")
    expected: Any = read()
    noticed = 0
    for _ in range(FLIPS_A_READER):
        before = flip_bit(path, chance)
        try:
            found: Any = read()
        except (AuditError, ValueError, OSError):
            # A user can act on these errors.
            noticed += 1
        else:
            if path.with_suffix(".unreadable").exists():
                # The part was set aside, so its texts run again.
                noticed += 1
                assert len(found) < len(expected)
                assert found == {text: expected[text] for text in found}
            else:
                assert found == expected
        replace_file(path, before)
    assert noticed >= FLIPS_A_READER // 3, "most other flips are in metadata of Parquet that is not read"
    assert read() == expected


def rows(paths: DataPaths, statements: Mapping[Path, str]) -> dict[Path, list[str]]:
    with open_read_only(paths.warehouse) as connection:
        return {
            file: sorted(json.dumps(row, default=str) for row in connection.sql(sql).fetchall())
            for file, sql in statements.items()
        }


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_no_warehouse_build_loads_another_number_after_a_flipped_bit(kept: DataFolder) -> None:
    paths, chance = kept.paths, random.Random("flips of a build")
    # Every file that the warehouse reads, with SQL for the rows from this file.
    statements = {}
    for table in (table.name for table in TABLES.values() if table.append_only):
        for pair in PAIRS:
            file = paths.run_file(table, pair.partition, "run")
            statements[file] = f"FROM {table} WHERE benchmark = '{pair.benchmark}'"
    for benchmark in BENCHMARKS:
        statements[paths.examples(benchmark)] = f"FROM examples WHERE benchmark = '{benchmark}'"
        statements[paths.split_quality(benchmark)] = f"FROM split_quality WHERE benchmark = '{benchmark}'"
        statements[paths.benchmark_manifest(benchmark)] = f"FROM benchmarks WHERE benchmark = '{benchmark}'"
    statements[paths.documents(SOURCE)] = "FROM documents"
    statements[paths.study(STUDY)] = "FROM control_studies"
    statements[paths.model_card(kept.model.identity.model_fingerprint)] = "FROM models"
    part = min(paths.table("token_statistics").glob("kind=base/*/part-*.parquet"))
    of_part = {*pq.read_table(part, columns=["key"], partitioning=None)["key"].to_pylist()}
    empty = paths.root.parent / "no config"
    assert {one.path.parent for one in build_warehouse(paths, config=empty).left_out} == {empty}
    expected = rows(paths, statements)
    assert sum(map(bool, expected.values())) > 0.8 * len(expected), "tables of findings hold something to be changed"
    cached = {part: "FROM token_statistics"}
    texts = rows(paths, cached)[part]
    of_other_parts = [row for row in texts if json.loads(row)[0] not in of_part]
    assert 0 < len(of_other_parts) < len(texts), "the flipped part is one of several"
    flips = noticed = 0
    for _ in range(BUILDS):
        before = {file: flip_bit(file, chance) for file in [*statements, part]}
        try:
            named = {one.path for one in build_warehouse(paths, config=empty).left_out}
            found = rows(paths, statements)
            for file, expected_rows in expected.items():
                assert found[file] == ([] if file in named else expected_rows), file
                assert file in before or file not in named
            assert rows(paths, cached)[part] == (of_other_parts if part in named else texts)
            flips, noticed = flips + len(before), noticed + len(named & before.keys())
        finally:
            for file, content in before.items():
                replace_file(file, content)
    assert noticed > flips // 2, "of the rest, most are in footers"
