"""The sides builder: members in one file and non-members in another, as in MIMIR."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from made_documents import sides_spec, words_of, write_jsonl

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.errors import DataError
from audit_pipeline.store.paths import DataPaths

MEMBERS = [words_of("m", 120), words_of("n", 150), words_of("o", 100)]
NONMEMBERS = [words_of("x", 200), words_of("y", 110)]


def lay_out(folder: Path, members: list[object], nonmembers: list[object]) -> Path:
    write_jsonl(folder / "cache_100_200_1000_512/train/arxiv_ngram_13_0.8.jsonl", members)
    write_jsonl(folder / "cache_100_200_1000_512/test/arxiv_ngram_13_0.8.jsonl", nonmembers)
    return folder


def mimir(folder: Path, **changes: Any) -> BenchmarkSpec:
    return sides_spec(
        family="mimir_arxiv",
        path=folder,
        subset="arxiv",
        members={"files": ["cache_100_200_1000_512/train/{subset}_ngram_13_0.8.jsonl"]},
        nonmembers={"files": ["cache_100_200_1000_512/test/{subset}_ngram_13_0.8.jsonl"]},
        **changes,
    )


def test_the_file_determines_the_side_and_texts_have_any_length(tmp_path: Path) -> None:
    spec = mimir(lay_out(tmp_path, [*MEMBERS], [*NONMEMBERS]))
    report = build(spec, DataPaths(tmp_path / "data"), "run")
    rows = report.examples.to_pylist()
    assert {(row["text"], row["label"], row["words"]) for row in rows} == {
        *((text, 1, len(text.split())) for text in MEMBERS),
        *((text, 0, len(text.split())) for text in NONMEMBERS),
    }
    assert {row["benchmark"] for row in rows} == {"mimir_arxiv"}
    assert len({row["group"] for row in rows}) == 5
    assert "exact_lengths" not in [check.name for check in report.checks]
    assert report.failed == ()
    assert report.manifest["words"] is None
    assert [entry["side"] for entry in report.manifest["provenance"]] == ["members", "nonmembers"]
    assert list(report.manifest["source_versions"]) == ["mimir_arxiv"]


def test_unusable_rows_are_reported_with_their_side(tmp_path: Path) -> None:
    torn = words_of("torn", 100)
    members: list[object] = [*MEMBERS, 7, "  ", torn, MEMBERS[0]]
    nonmembers: list[object] = [*NONMEMBERS, {"other": "column"}, torn]
    spec = mimir(lay_out(tmp_path, members, nonmembers))
    report = build(spec, DataPaths(tmp_path / "data"), "run")
    name = "arxiv_ngram_13_0.8.jsonl"
    assert {entry.location: entry.reason for entry in report.skipped} == {
        f"members {name}:4": "not a JSON object but int",
        f"members {name}:5": "column 'text' is empty",
        f"members {name}:6": "the same text occurs elsewhere with another label",
        f"members {name}:7": "the same as an earlier row",
        f"nonmembers {name}:3": "no column 'text'",
        f"nonmembers {name}:4": "the same text occurs elsewhere with another label",
    }
    assert (report.counts["members"], report.counts["nonmembers"]) == (3, 2)
    assert sum(report.texts_left_out.values()) == 6


def test_a_side_without_rows_is_an_error(tmp_path: Path) -> None:
    spec = mimir(lay_out(tmp_path, [*MEMBERS], [" "]))
    with pytest.raises(DataError, match=r"all 3 labelled rows of members: .* are members"):
        build(spec, DataPaths(tmp_path / "data"), "run")
    (tmp_path / "cache_100_200_1000_512/test/arxiv_ngram_13_0.8.jsonl").unlink()
    with pytest.raises(DataError, match="no such file"):
        build(spec, DataPaths(tmp_path / "data"), "run")


def test_sides_may_be_splits_of_exact_length_with_columns(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "old_4.jsonl", [{"t": words_of("a", 4), "book": "A"}, {"t": words_of("b", 5), "book": "B"}])
    write_jsonl(tmp_path / "new_4.jsonl", [{"t": words_of("c", 4), "book": "C"}, {"t": words_of("d", 4), "book": "C"}])
    spec = sides_spec(
        4,
        path=tmp_path,
        members={"split": "old_{words}"},
        nonmembers={"split": "new_{words}"},
        text_column="t",
        group_column="book",
    )
    report = build(spec, DataPaths(tmp_path / "data"), "run")
    assert report.examples.column("group").to_pylist() == ["two:A", "two:C", "two:C"]
    assert report.texts_left_out == {"has 5 words, not 4": 1}
    assert report.failed == ()


def test_the_order_of_rows_is_irrelevant(tmp_path: Path) -> None:
    draw = random.Random(0)
    members = [*MEMBERS, MEMBERS[0], words_of("both", 100)]
    nonmembers = [*NONMEMBERS, words_of("both", 100)]
    found = []
    for turn in range(2):
        if turn:
            draw.shuffle(members)
            draw.shuffle(nonmembers)
        spec = mimir(lay_out(tmp_path, [*members], [*nonmembers]), calibration_fraction=0.4)
        rows = build(spec, DataPaths(tmp_path / "data"), "run").examples.to_pylist()
        found.append({(row["example_id"], row["label"], row["split"], row["group"]) for row in rows})
    assert found[0] == found[1]
