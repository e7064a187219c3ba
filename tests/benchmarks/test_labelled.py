"""Labelled rows: usable rows, their labels, groups and origins, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_documents import labelled_spec, words_of, write_jsonl

from audit_pipeline.benchmarks.builders import labelled
from audit_pipeline.benchmarks.checks import run_checks
from audit_pipeline.benchmarks.config import load_benchmarks, resolve_benchmarks
from audit_pipeline.benchmarks.labelled_rows import LabelledRows, build_examples_from_rows, parse_label_column
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import Row, UnusableRowError
from audit_pipeline.store.paths import PROJECT_ROOT, DataPaths
from audit_pipeline.tables import text_sha256

Rows = Sequence[Mapping[str, Any]]

GOOD: Rows = [
    {"input": words_of("a", 4), "label": 1},
    {"input": words_of("b", 4), "label": 0},
    {"input": words_of("c", 4), "label": 0},
]


def read_labelled(spec: BenchmarkSpec) -> LabelledRows:
    return labelled.read_labelled_rows(spec, DataPaths.from_environment(), {}.__getitem__).content


def test_every_usable_row_becomes_an_unchanged_example(tmp_path: Path) -> None:
    spaced = "four  words\tstand here"
    write_jsonl(tmp_path / "Rows_length4.jsonl", [*GOOD, {"input": spaced, "label": None}])
    spec = labelled_spec(4, path=tmp_path, language="de")
    drawn = build_examples_from_rows(read_labelled(spec), spec, "run")
    rows = drawn.examples.to_pylist()
    assert [(row["text"], row["label"]) for row in rows] == [
        *((row["input"], row["label"]) for row in GOOD),
        (spaced, None),
    ]
    assert drawn.skipped == ()
    for row in rows:
        assert (row["words"], row["split"], row["collection"], row["language"]) == (4, "evaluation", "rows", "de")
        assert row["published"] is None
        assert row["document_id"] == row["group"] == f"rows:{text_sha256(' '.join(row['text'].split()))[:16]}"
    assert all(check.passed for check in run_checks(drawn.examples, spec))


@pytest.mark.parametrize(("design", "kept"), [("randomised", 2), ("exchangeable", 2), ("temporal", 4)])
def test_texts_on_both_sides_are_skipped(tmp_path: Path, design: str, kept: int) -> None:
    """Nearly equal texts are skipped only if chance decides the labels."""
    texts = [words_of(name, 32) for name in "abcd"]
    near = f"{texts[1].rsplit(' ', 1)[0]} otherwise"
    rows = [
        *({"input": text, "label": 1} for text in texts[:3]),
        {"input": texts[3], "label": 0},
        {"input": texts[0].upper().replace(" ", "  "), "label": 0},
        {"input": near, "label": 0},
    ]
    path = write_jsonl(tmp_path / "Rows_length32.jsonl", rows)
    spec = labelled_spec(32, path=tmp_path, design=design)
    drawn = build_examples_from_rows(read_labelled(spec), spec, "run")
    assert drawn.examples.num_rows == kept
    reason = "the same text, or nearly, occurs elsewhere with another label"
    equal = "the same text occurs elsewhere with another label"
    expected = {1: equal, 5: equal} if kept == 4 else {1: equal, 2: reason, 5: equal, 6: reason}
    assert drawn.texts_left_out == Counter(expected.values())
    skipped = {one.location: one.reason for one in drawn.skipped}
    assert skipped == {f"{path.name}:{line}": why for line, why in expected.items()}


def test_rows_of_one_article_share_their_group_across_lengths(tmp_path: Path) -> None:
    write_jsonl(
        tmp_path / "Rows_length32.jsonl",
        [{"input": words_of("a", 32), "label": 1}, {"input": words_of("b", 32), "label": 0}],
    )
    write_jsonl(
        tmp_path / "Rows_length64.jsonl",
        [{"input": words_of("b", 64), "label": 0}, {"input": words_of("a", 64), "label": 1}],
    )
    groups = {}
    for words in (32, 64):
        spec = labelled_spec(words, path=tmp_path)
        table = build_examples_from_rows(read_labelled(spec), spec, "run").examples
        groups[words] = dict(zip(table.column("label").to_pylist(), table.column("group").to_pylist(), strict=True))
    assert groups[32] == groups[64]
    assert len(set(groups[32].values())) == 2


def test_unusable_rows_are_reported_and_counted(tmp_path: Path) -> None:
    path = write_jsonl(
        tmp_path / "Rows_length4.jsonl",
        [
            *GOOD,
            {"input": words_of("short", 3), "label": 1},
            {"input": words_of("bad", 4), "label": 2},
            {"input": words_of("word", 4), "label": "member"},
            {"input": words_of("unlabelled", 4)},
            {"input": None, "label": 1},
            {"input": 7, "label": 1},
            {"label": 1},
            {"input": words_of("a", 4), "label": 1},
            {"input": words_of("torn", 4), "label": 1},
            {"input": words_of("torn", 4), "label": 0},
        ],
    )
    with path.open("a", encoding="utf-8") as file:
        file.write('{"input": \n')
    spec = labelled_spec(4, path=tmp_path)
    drawn = build_examples_from_rows(read_labelled(spec), spec, "run")
    assert drawn.examples.num_rows == 3
    reasons = {entry.location: entry.reason for entry in drawn.skipped}
    expected = {
        4: "has 3 words, not 4",
        5: "its label is 2, not 0, 1 or null",
        6: "its label is 'member', not 0, 1 or null",
        7: "no column 'label'",
        8: "column 'input' is null",
        9: "column 'input' is not a string but int",
        10: "no column 'input'",
        11: "the same as an earlier row",
        12: "the same text occurs elsewhere with another label",
        13: "the same text occurs elsewhere with another label",
    }
    assert {f"{path.name}:{line}": reason for line, reason in expected.items()}.items() <= reasons.items()
    assert "broken JSON" in reasons[f"{path.name}:14"]
    assert sum(drawn.texts_left_out.values()) == len(drawn.skipped) == 11
    assert drawn.texts_left_out["the same text occurs elsewhere with another label"] == 2


def test_a_single_class_is_refused_but_unlabelled_rows_are_not(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "Rows_length4.jsonl", [{"input": words_of(name, 4), "label": 1} for name in "abc"])
    spec = labelled_spec(4, path=tmp_path)
    with pytest.raises(DataError, match=r"rows_4: all 3 labelled rows of .* are members, so no metric"):
        build_examples_from_rows(read_labelled(spec), spec, "run")
    write_jsonl(
        tmp_path / "Rows_length4.jsonl",
        [{"input": words_of("a", 4), "label": None}, {"input": words_of("b", 4), "label": 0}],
    )
    with pytest.raises(DataError, match=r"all 1 labelled rows of .* are non-members"):
        build_examples_from_rows(read_labelled(spec), spec, "run")
    unlabelled = labelled_spec(4, path=tmp_path, label_column=None)
    drawn = build_examples_from_rows(read_labelled(unlabelled), unlabelled, "run")
    assert drawn.examples.column("label").to_pylist() == [None, None]
    assert all(check.passed for check in run_checks(drawn.examples, unlabelled))


def test_a_missing_column_is_an_error_that_lists_the_columns(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "Rows_length4.jsonl", [{"text": words_of("a", 4), "member": 1}])
    with pytest.raises(DataError, match="no column 'input'; the columns are: text, member"):
        read_labelled(labelled_spec(4, path=tmp_path))
    with pytest.raises(DataError, match="no column 'label'; the columns are: text, member"):
        read_labelled(labelled_spec(4, path=tmp_path, text_column="text"))


def test_no_usable_row_and_no_file_are_errors(tmp_path: Path) -> None:
    spec = labelled_spec(4, path=tmp_path, path_variable="MADE_ROWS")
    with pytest.raises(DataError, match=r"contains neither Rows_length4.jsonl .* nor data/Rows_length4-\*.parquet"):
        read_labelled(spec)
    write_jsonl(tmp_path / "Rows_length4.jsonl", [{"input": "one two", "label": 1}, {"input": "one", "label": 1}])
    with pytest.raises(DataError, match=r"none of the 2 rows can be used. The first row is .*:1: has 2 words, not 4"):
        read_labelled(spec)
    (tmp_path / "Rows_length4.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="no rows"):
        read_labelled(spec)


def test_jsonl_csv_and_parquet_parts_give_the_same_benchmark(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("jsonl", "csv", "parts")}
    for folder in folders.values():
        folder.mkdir()
    write_jsonl(folders["jsonl"] / "Rows_length4.jsonl", GOOD)
    lines = ["input,label", *(f"{row['input']},{row['label']}" for row in GOOD)]
    (folders["csv"] / "Rows_length4.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folders["parts"] / "data").mkdir()
    for part, some in enumerate((GOOD[:2], GOOD[2:])):
        table = pa.Table.from_pylist([dict(row) for row in some])
        pq.write_table(table, folders["parts"] / "data" / f"Rows_length4-{part:05d}-of-00002.parquet")
    read = [read_labelled(labelled_spec(4, path=folder)) for folder in folders.values()]

    assert len({rows.version for rows in read}) == 1
    assert len({rows.texts for rows in read}) == 1


def test_versions_follow_the_rows(tmp_path: Path) -> None:
    spec = labelled_spec(4, path=tmp_path)

    def version(rows: Rows) -> str:
        write_jsonl(tmp_path / "Rows_length4.jsonl", rows)
        return read_labelled(spec).version

    assert version(GOOD) == version([dict(reversed(row.items())) for row in GOOD])
    relabelled = [{**GOOD[0], "label": 0}, {**GOOD[1], "label": 1}, GOOD[2]]
    assert len({version(GOOD), version(GOOD[:2]), version(relabelled), version([*GOOD, {"input": "x"}])}) == 4


WIKIMIA = PROJECT_ROOT.parent / "shared" / "benchmarks" / "wikimia"


@pytest.mark.skipif(not WIKIMIA.is_dir(), reason=f"the WikiMIA rows are not at {WIKIMIA}")
def test_wikimia_has_its_published_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_WIKIMIA", str(WIKIMIA))
    benchmarks = load_benchmarks(PROJECT_ROOT / "config")
    sizes = {}
    groups: dict[int, set[str]] = {}
    for spec in resolve_benchmarks("wikimia", benchmarks):
        drawn = build_examples_from_rows(read_labelled(spec), spec, "run")
        table = drawn.examples
        sizes[spec.length] = (table.num_rows, sum(table.column("label").to_pylist()))
        groups[spec.length] = set(table.column("group").to_pylist())
        assert {len(text.split()) for text in table.column("text").to_pylist()} == {spec.words}
        assert set(table.column("split").to_pylist()) == {"evaluation"}
        assert drawn.skipped == ()
        assert all(check.passed for check in run_checks(table, spec) if check.blocking)
    assert sizes == {32: (776, 387), 64: (542, 284), 128: (250, 139), 256: (82, 51)}
    assert groups[256] < groups[128] < groups[64] < groups[32]


def test_columns_hold_document_group_and_day(tmp_path: Path) -> None:
    rows: Rows = [
        {"input": "one two", "label": 1, "book": "A", "page": 7, "day": "2020-05-01"},
        {"input": "three", "label": 0, "book": "B", "page": "8", "day": ""},
        {"input": "four", "label": 0, "book": "B", "page": 9, "day": "2024-01-02T03:04:05"},
        {"input": "five", "label": 0, "book": None, "page": 10, "day": None},
        {"input": "six", "label": 0, "book": "C", "page": " ", "day": None},
        {"input": "seven", "label": 0, "book": "C", "page": 11, "day": "soon"},
        {"input": "eight", "label": 0, "book": "C", "page": 12, "day": "2020"},
    ]
    write_jsonl(tmp_path / "Rows_length4.jsonl", rows)
    columns = {"group_column": "book", "id_column": "page", "date_column": "day", "date_kind": "printing"}
    spec = labelled_spec(4, path=tmp_path, exact_words=False, **columns)
    drawn = build_examples_from_rows(read_labelled(spec), spec, "run")
    assert [
        (row["document_id"], row["group"], str(row["published"]), row["words"]) for row in drawn.examples.to_pylist()
    ] == [
        ("rows:7", "rows:A", "2020-05-01", 2),
        ("rows:8", "rows:B", "None", 1),
        ("rows:9", "rows:B", "2024-01-02", 1),
        ("rows:11", "rows:C", "None", 1),
        ("rows:12", "rows:C", "None", 1),
    ]
    assert [entry.reason for entry in drawn.skipped] == [
        "column 'book' is null",
        "column 'page' is empty",
    ]
    # The examples have no column for the first day of an interval.
    assert [row["reason"] for row in drawn.notes["undated"]["first"]] == [
        "column 'day': 'soon' is not a readable date",
        "column 'day': '2020' is more than one day",
    ]
    assert [check.name for check in run_checks(drawn.examples, spec) if not check.passed] == []
    assert "exact_lengths" not in [check.name for check in run_checks(drawn.examples, spec)]
    with pytest.raises(DataError, match="no column 'isbn'"):
        read_labelled(labelled_spec(4, path=tmp_path, exact_words=False, group_column="isbn"))


def test_label_values_map_words_to_labels(tmp_path: Path) -> None:
    values = ("member", "nonmember", None, "", 1)
    rows = [{"input": words_of(f"{name}x", 4), "label": value} for name, value in zip("abcde", values, strict=True)]
    write_jsonl(tmp_path / "Rows_length4.jsonl", rows)
    spec = labelled_spec(4, path=tmp_path, label_values={"member": 1, "nonmember": 0})
    read = read_labelled(spec)
    assert [text.label for text in read.texts] == [1, 0, None, None]
    assert [entry.reason for entry in read.skipped] == ["its label is 1, not member, nonmember or null"]


def test_the_choice_among_equal_rows_does_not_depend_on_their_order(tmp_path: Path) -> None:
    twice: Rows = [{"input": words_of("same", 4), "label": 1, "book": book} for book in ("B", "A")]
    other: Rows = [{"input": words_of("other", 4), "label": 0, "book": "C"}]
    for rows, which in (([*twice, *other], "a later"), ([*reversed(twice), *other], "an earlier")):
        write_jsonl(tmp_path / "Rows_length4.jsonl", rows)
        read = read_labelled(labelled_spec(4, path=tmp_path, group_column="book"))
        assert {text.group for text in read.texts} == {"rows:A", "rows:C"}
        assert [entry.reason for entry in read.skipped] == [f"the same as {which} row"]


def test_the_version_of_wikimia_is_unchanged() -> None:
    if not WIKIMIA.is_dir():
        pytest.skip(f"the WikiMIA rows are not at {WIKIMIA}")
    spec = labelled_spec(256, path=WIKIMIA, split="WikiMIA_length{words}")
    assert read_labelled(spec).version == "8d5f8a09b68d5b5630a0751eee48c065af67b37b355f4e5996401cf5a7892ff5"


LONG = f"its label is '{'word ' * 6}…', not "


def read_label(value: object, meanings: dict[str, int] | None = None) -> int | None:
    return parse_label_column(Row("a:1", 0, {"label": value}), "label", meanings or {})


@pytest.mark.parametrize(
    ("value", "label"), [(1, 1), (0, 0), (True, 1), (0.0, 0), ("1", 1), (" 0 ", 0), ("", None), (None, None)]
)
def test_labels_in_every_spelling(value: object, label: int | None) -> None:
    assert read_label(value) == label


@pytest.mark.parametrize(
    ("value", "meanings", "reason"),
    [
        *((value, None, "not 0, 1 or null") for value in (-1, 2, 0.5, "yes", "01", [1], float("nan"))),
        # If columns are shifted, the value is the text, which may be in copyright. Manifests contain the reasons.
        ("word " * 1000, None, f"{LONG}0, 1 or null"),
        ("word " * 1000, {"yes": 1}, f"{LONG}yes or null"),
        ("maybe", None, "its label is 'maybe', not 0, 1 or null"),
        (list(range(10_000)), None, "its label is [0, 1, 2, 3, 4, 5, 6, 7, 8, 9,…, not 0, 1 or null"),
    ],
)
def test_invalid_labels_are_quoted_in_short_form(value: object, meanings: dict[str, int] | None, reason: str) -> None:
    with pytest.raises(UnusableRowError) as error:
        read_label(value, meanings)
    assert str(error.value).endswith(reason)
