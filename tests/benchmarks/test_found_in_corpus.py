"""Labels from a search of a corpus: members, non-members and skipped texts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from made_documents import document, documents_table, shelf_spec, words_of
from made_overlap import FOUND, write_search

from audit_pipeline.benchmarks import build as building
from audit_pipeline.benchmarks.build import build, compute_digest_from_inputs
from audit_pipeline.benchmarks.builders.verified import FoundInCorpusSettings, label_text
from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.paths import DataPaths

CORPUS = "open"
POOL = "shelf_60"
COMMAND = f"corpus-audit overlap --benchmark {POOL} --corpus {CORPUS}"

# The collection, the day and the search result of each document of 60 words.
DOCUMENTS: Mapping[str, tuple[str, date | None, Mapping[str, Any]]] = {
    "copied": ("north", date(2020, 1, 1), FOUND),
    "absent": ("north", date(2020, 12, 31), {}),
    "later": ("north", date(2021, 1, 1), {}),
    "south": ("south", date(2020, 1, 1), {}),
    "undated": ("north", None, FOUND),
    "quoted": ("north", date(2020, 2, 2), {**FOUND, "covered_by_copies": 0.4, "longest": 24}),
    "proverb": ("north", date(2020, 2, 2), {"verdict": "shared text", "covered": 0.3, "longest": 18}),
    "short": ("north", date(2020, 2, 2), {"verdict": "too short to tell", "contaminated": None}),
    "template": ("north", date(2020, 2, 2), {"templates": 3}),
}


def found_spec(words: int | None = None, **changes: Any) -> BenchmarkSpec:
    fields = {
        **{"builder": "found_in_corpus", "description": "made up", "pool": POOL, "corpus": CORPUS},
        **{"words": "any" if words is None else [words], "calibration_fraction": 0, "seed": 5},
        **changes,
    }
    return BenchmarkSpec("known", words, FoundInCorpusSettings.model_validate(fields))


def build_pool(paths: DataPaths, *more: dict[str, Any], **changes: Any) -> None:
    """Build a shelf of all documents, with one group per first letter."""
    documents = [
        document(name, day, 60, collection=collection, group=name[0])
        for name, (collection, day, _) in DOCUMENTS.items()
    ]
    build(shelf_spec(60, **changes), paths, "pool", lambda source: documents_table([*documents, *more]))


def finding_of(example: Mapping[str, Any]) -> Mapping[str, Any]:
    return DOCUMENTS[example["document_id"].rpartition(":")[2]][2]


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    """Return a data folder with the pool and the result of a complete search."""
    paths = DataPaths(tmp_path)
    build_pool(paths)
    write_search(paths, POOL, CORPUS, finding_of)
    return paths


def labels_of(report: building.BenchmarkReport) -> dict[str, int | None]:
    rows = report.examples.to_pylist()
    return {row["document_id"].rpartition(":")[2]: row["label"] for row in rows}


def test_texts_in_the_corpus_are_members_and_absent_texts_are_not(paths: DataPaths) -> None:
    report = build(found_spec(), paths, "run")
    assert labels_of(report) == {"copied": 1, "undated": 1, "absent": 0, "later": 0, "south": 0}
    assert report.texts_left_out == {
        "in the corpus in part": 1,
        "in the corpus as shared text alone": 1,
        "too short to tell": 1,
        "with phrases that were not searched for": 1,
    }
    assert report.failed == ()
    [copied] = [row for row in report.examples.to_pylist() if row["document_id"] == "made:north:copied"]
    assert copied["text"] == words_of("copied", 60)
    told = (copied["group"], copied["collection"], copied["published"], copied["words"], copied["benchmark"])
    assert told == ("c", "north", date(2020, 1, 1), 60, "known")


def test_the_manifest_states_the_origin_of_texts_and_labels(paths: DataPaths) -> None:
    manifest = build(found_spec(), paths, "run").manifest
    assert manifest["label_source"] == "corpus"
    assert manifest["design"] == "selected"
    assert manifest["origin"] == f"the texts of {POOL}, searched for in the corpus {CORPUS}"
    assert manifest["searched"] == {"corpus": CORPUS, "n": 13, "shards": 2}
    assert [entry["source"] for entry in manifest["provenance"]] == ["made"]
    assert set(manifest["source_versions"]) == {f"examples/{POOL}", f"corpus_overlap/{POOL}|{CORPUS}"}


@pytest.mark.parametrize(
    ("finding", "is_member"),
    [
        ({"covered_by_copies": 0.9, "longest": 50}, True),
        ({"covered_by_copies": 0.899, "longest": 50}, False),
        ({"covered_by_copies": 0.9, "longest": 49}, False),
        ({"covered_by_copies": 0.9, "longest": 49, "words": 49}, True),
        ({"covered_by_copies": 0.9, "longest": 19, "words": 20}, False),
    ],
)
def test_a_member_needs_a_minimum_share_and_one_long_passage(finding: Mapping[str, Any], is_member: bool) -> None:
    settings = found_spec().require_settings(FoundInCorpusSettings)
    label, reason = label_text({"words": 60, **FOUND, **finding}, settings)
    assert (label, reason) == ((1, None) if is_member else (None, "in the corpus in part"))


def test_the_entry_sets_share_and_length(paths: DataPaths) -> None:
    assert labels_of(build(found_spec(share=0.4, length=24), paths, "run"))["quoted"] == 1
    assert "quoted" not in labels_of(build(found_spec(share=0.4, length=25), paths, "run"))


def test_only_collections_and_years_with_both_labels_are_used(paths: DataPaths) -> None:
    report = build(found_spec(both_labels_in="collection_and_year"), paths, "run")
    assert labels_of(report) == {"copied": 1, "absent": 0}
    assert report.texts_left_out["from a collection and year with only members or only non-members"] == 2
    assert report.texts_left_out["without a date"] == 1


def test_a_group_may_have_both_labels_and_stays_in_one_split(paths: DataPaths) -> None:
    build_pool(paths, document("core", date(2020, 1, 1), 60, collection="north", group="c"))
    write_search(paths, POOL, CORPUS, lambda row: {} if row["document_id"].endswith("core") else finding_of(row))
    rows = build(found_spec(calibration_fraction=0.5), paths, "run").examples.to_pylist()
    assert {(row["label"], row["group"]) for row in rows if row["group"] == "c"} == {(1, "c"), (0, "c")}
    assert len({row["split"] for row in rows if row["group"] == "c"}) == 1


def test_an_incomplete_search_yields_no_labels(paths: DataPaths) -> None:
    write_search(paths, POOL, CORPUS, finding_of, is_complete=False, shards_read=37, shards=1024)
    with pytest.raises(DataError, match=r"37 of its 1,024 shards were read.*may still be in it") as told:
        build(found_spec(), paths, "run")
    assert COMMAND in str(told.value)
    write_search(paths, POOL, CORPUS, finding_of, is_complete=False)
    with pytest.raises(DataError, match="some of its rows or files could not be used"):
        build(found_spec(), paths, "run")


def test_errors_name_the_missing_step_and_its_command(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    for ask in (lambda: build(found_spec(), paths, "run"), lambda: compute_digest_from_inputs(found_spec(), paths)):
        with pytest.raises(DataError, match=f"the benchmark {POOL} has not been built yet"):
            ask()
    build_pool(paths)
    for ask in (lambda: build(found_spec(), paths, "run"), lambda: compute_digest_from_inputs(found_spec(), paths)):
        with pytest.raises(DataError, match=f"{CORPUS} has not been searched for the texts of {POOL}. Run: {COMMAND}$"):
            ask()


def test_a_search_of_an_earlier_build_is_refused(paths: DataPaths) -> None:
    build_pool(paths, document("more", None, 60))
    with pytest.raises(DataError, match=f"was rebuilt after the corpus {CORPUS} was searched.*{COMMAND}"):
        build(found_spec(), paths, "run")


def test_an_empty_side_is_an_error_with_counts(paths: DataPaths) -> None:
    write_search(paths, POOL, CORPUS, lambda row: {"templates": 1} if "copied" in row["text"] else {})
    with pytest.raises(DataError, match=r"0 members and 8 non-members remain \(skipped: 1 with phrases .*\)"):
        build(found_spec(), paths, "run")


def test_the_digest_follows_search_and_pool_without_reading_them(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build(found_spec(), paths, "run").digest
    monkeypatch.setattr(building, "read_inputs", None)
    assert compute_digest_from_inputs(found_spec(), paths) == built
    assert compute_digest_from_inputs(found_spec(share=0.8), paths) != built
    assert compute_digest_from_inputs(found_spec(both_labels_in="collection_and_year"), paths) != built
    write_search(paths, POOL, CORPUS, lambda row: {**finding_of(row), "documents": 7})
    assert compute_digest_from_inputs(found_spec(), paths) != built
    write_search(paths, POOL, CORPUS, finding_of)
    assert compute_digest_from_inputs(found_spec(), paths) == built, "the same was found again"
    monkeypatch.undo()
    build_pool(paths, near_duplicate_threshold=0.9)
    assert compute_digest_from_inputs(found_spec(), paths) != built


SHELF = """\
  shelf:
    builder: shelf
    description: made up
    sources: [made]
    words: [60]
    windows_per_document: 3
    seed: 1
"""
KNOWN = """\
  known:
    builder: found_in_corpus
    description: made up
    pool: {pool}
    corpus: open
    words: any
    seed: 1
"""


@pytest.mark.parametrize(
    ("pool", "words"),
    [
        ("shelf_60", None),
        ("shelf", r"pool: there is no other benchmark 'shelf'; did you mean shelf_60\?"),
        ("known", r"pool: there is no other benchmark 'known'; there are: shelf_60"),
    ],
)
def test_a_pool_is_another_benchmark_of_the_file(tmp_path: Path, pool: str, words: str | None) -> None:
    (tmp_path / "benchmarks.yaml").write_text(f"benchmarks:\n{SHELF}{KNOWN.format(pool=pool)}")
    benchmarks = load_benchmarks(tmp_path)
    assert ("known" in benchmarks) == (words is None)
    if words is None:
        assert benchmarks["known"].settings.on_request
    else:
        with pytest.raises(ConfigError, match=words):
            benchmarks.require_not_broken("known")
        assert [problem.line for problem in benchmarks.problems] == [12]
