"""Digests and manifests of built benchmarks."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from ledger_lines import write_explained
from made_documents import NEW, OLD, document, documents_table, labelled_spec, temporal_spec, words_of
from made_rows import example, examples_table

from audit_pipeline.benchmarks import rows_origin
from audit_pipeline.benchmarks.build import (
    build,
    compute_benchmark_digest,
    compute_digest_from_inputs,
    count_examples,
    read_inputs,
)
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BUILDERS, load_benchmarks
from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.text_rows import RowFile
from audit_pipeline.store.paths import PROJECT_ROOT, DataPaths
from audit_pipeline.tables import DOCUMENTS, EXAMPLES, text_sha256

VERSIONS = {"made": "1"}


def some_documents(extra: int = 0) -> pa.Table:
    rows = [document(f"old{number}n", OLD, 60, collection="ab"[number % 2]) for number in range(10)]
    rows += [document(f"new{number}n", NEW, 60, collection="ab"[number % 2]) for number in range(6 + extra)]
    return documents_table([*rows, document("mid", date(2023, 1, 1)), document("undated", None)])


def test_the_digest_covers_every_setting_that_changes_examples(tmp_path: Path) -> None:
    base = compute_benchmark_digest(temporal_spec(), VERSIONS)
    changed = [
        compute_benchmark_digest(temporal_spec(**change), VERSIONS)
        for change in (
            {"seed": 6},
            {"family": "other"},
            {"words": 11},
            {"windows_per_document": 4},
            {"per_side": 9},
            {"balance": "none"},
            {"calibration_fraction": 0.5},
            {"nonmember_from": date(2025, 1, 2)},
            {"language": "en"},
            {"match": {"per_side": 9}},
        )
    ]
    changed.append(compute_benchmark_digest(temporal_spec(), {"made": "2"}))
    changed.append(compute_benchmark_digest(temporal_spec(), {"elsewhere": "1"}))
    assert len({base, *changed}) == len(changed) + 1
    assert base == compute_benchmark_digest(temporal_spec(), dict(VERSIONS))


def test_the_digest_does_not_depend_on_the_location_of_rows() -> None:
    here, there = (labelled_spec(path=path, path_variable=name) for path, name in (("/a", "A"), ("/b", None)))
    assert compute_benchmark_digest(here, {"rows": "1"}) == compute_benchmark_digest(there, {"rows": "1"})
    assert compute_benchmark_digest(here, {"rows": "1"}) != compute_benchmark_digest(here, {"rows": "2"})


def test_the_builder_version_is_part_of_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compute_benchmark_digest(temporal_spec(), VERSIONS), compute_benchmark_digest(labelled_spec(), VERSIONS)
    newer = {**BUILDERS, "temporal": replace(BUILDERS["temporal"], version=10**6)}
    monkeypatch.setattr("audit_pipeline.benchmarks.build.BUILDERS", newer)
    assert compute_benchmark_digest(temporal_spec(), VERSIONS) != before[0]
    assert compute_benchmark_digest(labelled_spec(), VERSIONS) == before[1]


def test_a_benchmark_is_written_with_its_manifest(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    spec = temporal_spec(calibration_fraction=0.25, windows_per_document=2)
    report = build(spec, paths, "run-1", lambda source: some_documents())
    assert read_built(paths, "made_10").examples.equals(report.examples)
    assert read_built(paths, "made_10").examples.schema.equals(EXAMPLES.schema)
    manifest = read_built(paths, "made_10").manifest
    assert manifest == json.loads(json.dumps(report.manifest, default=str))
    assert manifest["digest"] == report.digest == compute_benchmark_digest(spec, manifest["source_versions"])
    assert manifest["source_versions"] == read_inputs(spec, paths, lambda source: some_documents()).source_versions
    # a and b: 5 old and 3 new documents each, two windows per document: 6 texts per side and collection.
    assert manifest["counts"]["by_collection"] == {
        name: {"members": 6, "nonmembers": 6, "unlabelled": 0} for name in ("a", "b")
    }
    # A quarter of 12 texts per side is 3; non-members come in groups of two: 2 or 4, members in groups of 1 and 2.
    calibrated = manifest["counts"]["by_split"]["calibration"]
    assert calibrated["members"] in (2, 3, 4)
    assert calibrated["nonmembers"] in (2, 4)
    assert manifest["documents_left_out"] == {"published between the cutoffs": 1, "undated": 1}
    assert manifest["texts_left_out"] == {"more than the other side has in the collection": 8}
    assert (manifest["words"], manifest["design"], manifest["run_id"]) == (10, "temporal", "run-1")
    assert manifest["design_stated_by"] is None, "the dates are the sources'"
    (provenance,) = manifest["provenance"]
    assert (provenance["source"], provenance["documents"], provenance["kinds of date"]) == ("made", 18, {"release": 18})
    assert provenance["licences"] == {"CC0-1.0": 18}
    assert provenance["retrieved"] == {"first": "2026-01-01", "last": "2026-01-01"}
    assert manifest["near_duplicates"]["pairs between the sides"] == 0
    assert [check["passed"] for check in manifest["checks"]] == [True] * 8
    assert report.failed == ()


def test_equal_inputs_yield_equal_builds(tmp_path: Path) -> None:
    spec = temporal_spec(calibration_fraction=0.25)
    first, second = (
        build(spec, DataPaths(tmp_path / name), "run", lambda source: some_documents()) for name in ("a", "b")
    )
    assert first.examples.equals(second.examples)
    assert first.manifest == second.manifest
    more = build(spec, DataPaths(tmp_path / "a"), "run", lambda source: some_documents(extra=1))
    assert more.digest != first.digest


def test_the_current_digest_follows_the_documents(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    spec = temporal_spec(sources=["sotu"])
    write_explained(paths, DOCUMENTS, "sotu", some_documents())
    built = build(spec, paths, "run").digest
    assert compute_digest_from_inputs(spec, paths) == built
    write_explained(paths, DOCUMENTS, "sotu", some_documents(extra=1))
    assert compute_digest_from_inputs(spec, paths) != built


def test_the_current_digest_follows_the_rows_of_one_file_and_reads_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = tmp_path / "rows.jsonl", []

    def counted(path: Path, *arguments: str) -> RowFile:
        read.append(path)
        return read_rows(path, *arguments)

    monkeypatch.setattr(rows_origin, "read_rows", counted)
    spec, paths = labelled_spec(4, path=file, split=None), DataPaths(tmp_path)
    digests = []
    for number in (4, 5):
        file.write_text("".join(f'{{"input": "{words_of(str(one), 4)}", "label": 1}}\n' for one in range(number)))
        digests += [compute_digest_from_inputs(spec, paths), compute_digest_from_inputs(spec, paths)]
    assert digests[0] == digests[1] != digests[2] == digests[3]
    assert read == [file, file]
    file.unlink()
    with pytest.raises(DataError, match=r"rows\.jsonl"):
        compute_digest_from_inputs(spec, paths)


def test_a_failed_build_keeps_the_earlier_build(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    spec = temporal_spec()
    build(spec, paths, "run-1", lambda source: some_documents())
    with pytest.raises(DataError, match="no non-member text"):
        build(spec, paths, "run-2", lambda source: documents_table([document("old", OLD)]))
    assert read_built(paths, spec.name).manifest["run_id"] == "run-1"
    assert set(read_built(paths, spec.name).examples.column("run_id").to_pylist()) == {"run-1"}


def test_a_labelled_benchmark_is_built_with_its_skipped_rows(tmp_path: Path) -> None:
    rows = [{"input": words_of(f"row{number}n", 4), "label": number % 2} for number in range(10)]
    bad = [{"input": "too short", "label": 1}] * 25
    content = "".join(json.dumps(row) + "\n" for row in [*rows, *bad])
    (tmp_path / "Rows_length4.jsonl").write_text(content, encoding="utf-8")
    paths = DataPaths(tmp_path / "data")
    report = build(labelled_spec(4, path=tmp_path, calibration_fraction=0.2), paths, "run")
    manifest = read_built(paths, "rows_4").manifest
    assert manifest["skipped"]["rows"] == len(report.skipped) == 25
    assert len(manifest["skipped"]["first"]) == 20
    assert manifest["skipped"]["first"][0] == {"row": "Rows_length4.jsonl:11", "reason": "has 2 words, not 4"}
    assert manifest["texts_left_out"] == {"has 2 words, not 4": 25}
    assert manifest["counts"]["by_split"]["calibration"] == {"members": 1, "nonmembers": 1, "unlabelled": 0}
    assert str(tmp_path) in manifest["origin"]
    (provenance,) = manifest["provenance"]
    assert provenance["files"] == {str(tmp_path / "Rows_length4.jsonl"): text_sha256(content)}
    assert (provenance["licence"], provenance["kind of date"]) == ("not stated", "not dated")
    assert list(manifest["source_versions"]) == ["rows"]
    assert report.failed == ()


def test_a_failed_blocking_check_is_reported(tmp_path: Path) -> None:
    rows = [{"input": words_of(name, 4), "label": label} for name, label in (("a", 1), ("b", 0), ("c", 0))]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "Rows_length4.jsonl").write_text(content, encoding="utf-8")
    report = build(labelled_spec(4, path=tmp_path, calibration_fraction=0.9), DataPaths(tmp_path / "data"), "run")
    assert [check.name for check in report.failed] == ["both_classes"]


def test_missing_and_corrupt_manifests_are_errors(tmp_path: Path) -> None:
    paths = DataPaths(tmp_path)
    with pytest.raises(DataError, match="the benchmark made_10 has not been built yet"):
        read_built(paths, "made_10")
    build(temporal_spec(), paths, "run", lambda source: some_documents())
    for broken in ('{"digest": ', "[]"):
        paths.benchmark_manifest("made_10").write_text(broken, encoding="utf-8")
        with pytest.raises(DataError, match=r"[Bb]uild the benchmark again"):
            read_built(paths, "made_10")


def test_counts_by_hand() -> None:
    examples = examples_table(
        [
            example("1", label=1, split="calibration", collection="x", group="g"),
            example("2", label=0, collection="x", group="h"),
            example("3", label=None, collection="y", group="h"),
        ]
    )
    counts = count_examples(examples)
    assert (counts["texts"], counts["members"], counts["nonmembers"], counts["unlabelled"]) == (3, 1, 1, 1)
    assert (counts["groups"], counts["documents"]) == (2, 3)
    assert counts["by_split"]["calibration"] == {"members": 1, "nonmembers": 0, "unlabelled": 0}
    assert counts["by_collection"]["x"] == {"members": 1, "nonmembers": 1, "unlabelled": 0}


def test_the_shipped_demo_builds(tmp_path: Path) -> None:
    """The demo has 100 texts per side, about as many per project, and all are evaluated."""
    spec = load_benchmarks(PROJECT_ROOT / "config")["demo_64"]
    documents = documents_table(
        document(f"{project}{side}{number}n", when, 300, collection=project)
        for project in ("django", "pytest", "sqlalchemy")
        for side, when in (("old", OLD), ("new", NEW))
        for number in range(10)
    )
    report = build(spec, DataPaths(tmp_path), "run", lambda source: documents)
    assert report.counts["by_split"] == {"evaluation": {"members": 100, "nonmembers": 100, "unlabelled": 0}}
    assert {tuple(sides.values()) for sides in report.counts["by_collection"].values()} == {(33, 33, 0), (34, 34, 0)}
    assert report.failed == ()
