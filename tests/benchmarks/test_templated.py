"""The templated builder: texts of rows, skipped rows, and the sandbox of templates."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from made_documents import templated_spec, words_of, write_jsonl
from pydantic import ValidationError

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.builders.templated import RowTemplate
from audit_pipeline.errors import DataError
from audit_pipeline.readers.text_rows import UnusableRowError
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import text_sha256

ITEMS: list[dict[str, Any]] = [
    {"question": "Is water wet?", "answer": True, "passage": "Water is a liquid.", "id": "a"},
    {"question": "Is fire cold?", "answer": False, "passage": "Fire is hot.", "id": "b"},
    {"question": "Is ice {{ warm }}?", "answer": False, "passage": "<b>Ice</b> & snow.", "id": "c"},
]
BOOLQ = "{{ passage }}\nQuestion: {{ question }}\nAnswer: {{ 'yes' if answer else 'no' }}"


def built(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Any:
    write_jsonl(folder / "test.jsonl", rows)
    return build(templated_spec(path=folder, **changes), DataPaths(folder / "data"), "run")


def test_rows_become_texts_without_labels(tmp_path: Path) -> None:
    report = built(tmp_path, ITEMS, template=BOOLQ, id_column="id")
    rows = report.examples.to_pylist()
    assert [row["text"] for row in rows] == [
        "Water is a liquid.\nQuestion: Is water wet?\nAnswer: yes",
        "Fire is hot.\nQuestion: Is fire cold?\nAnswer: no",
        # Row values are data. They are not templates, and nothing is escaped.
        "<b>Ice</b> & snow.\nQuestion: Is ice {{ warm }}?\nAnswer: no",
    ]
    assert [row["label"] for row in rows] == [None] * 3
    assert [row["document_id"] for row in rows] == ["items:a", "items:b", "items:c"]
    assert [row["words"] for row in rows] == [len(row["text"].split()) for row in rows]
    assert {row["benchmark"] for row in rows} == {"items"}
    assert report.failed == ()
    assert report.manifest["design"] == "unlabelled"


def test_an_answer_becomes_the_text_and_its_question_the_context(tmp_path: Path) -> None:
    rows = [{"q": "Which metal?", "a": "boron"}, {"q": "How many?", "a": 4}, {"q": "Who is it?", "a": None}]
    report = built(tmp_path, rows, template="{{ q }}", answer="{{ a }}")
    found = {(row["context"], row["text"]) for row in report.examples.to_pylist()}
    assert found == {("Which metal?\n", "boron"), ("How many?\n", "4"), (None, "Who is it?")}


def test_templates_read_nested_columns_and_any_column_name(tmp_path: Path) -> None:
    rows = [{"q": "Which?", "choices": {"label": ["A", "B"], "text": ["one", "two"]}, "the key": "B"}]
    template = (
        "{{ q }}{% for label in choices.label %}\n({{ label }}) {{ choices.text[loop.index0] }}{% endfor %}\n"
        "Answer: {{ row['the key'] }}"
    )
    report = built(tmp_path, rows, template=template)
    assert report.examples.column("text").to_pylist() == ["Which?\n(A) one\n(B) two\nAnswer: B"]


def test_items_are_separate_groups_unless_a_column_groups_them(tmp_path: Path) -> None:
    rows = [
        {"question": f"{words_of('same', 40)} {name}", "answer": 1, "topic": name[0]} for name in ("aa", "ab", "ba")
    ]
    assert len(set(built(tmp_path, rows).examples.column("group").to_pylist())) == 3
    grouped = built(tmp_path, rows, group_column="topic").examples.column("group").to_pylist()
    assert grouped == ["items:a", "items:a", "items:b"]
    passage = words_of("passage", 100)
    rows = [{**row, "topic": passage} for row in rows]
    assert set(built(tmp_path, rows, group_column="topic").examples.column("group").to_pylist()) == {
        f"items:{text_sha256(passage)[:16]}"
    }


def test_unusable_and_long_rows_are_reported(tmp_path: Path) -> None:
    rows = [
        *ITEMS,
        {"answer": True},
        {"question": None, "answer": True},
        {"question": words_of("long", 20), "answer": True},
        ITEMS[0],
    ]
    report = built(tmp_path, rows, template="{{ question }} {{ answer }}", max_words=10)
    assert {entry.location: entry.reason for entry in report.skipped} == {
        "test.jsonl:4": "the template cannot be filled: 'question' is undefined",
        "test.jsonl:5": "the template cannot be filled: a value is null",
        "test.jsonl:6": "has 21 words, more than 10",
        "test.jsonl:7": "the same as an earlier row",
    }
    report = built(tmp_path, rows, template="{{ question or 'nothing' }} {{ answer }}")
    assert "nothing True" in report.examples.column("text").to_pylist()


def test_blank_texts_and_failing_filters_are_reported(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"question": "  "}, {"question": [1]}, {"question": "good"}]
    report = built(tmp_path, rows, template="{{ question + '' }}")
    reasons = {entry.location: entry.reason for entry in report.skipped}
    assert reasons["test.jsonl:1"] == "its text is empty"
    assert reasons["test.jsonl:2"].startswith("the template cannot be filled: can only concatenate list")
    with pytest.raises(
        DataError, match=r"none of the 3 rows .*The first row is test.jsonl:1: .*'nothing' is undefined"
    ):
        built(tmp_path, rows, template="{{ nothing }}")


def test_labels_from_a_column(tmp_path: Path) -> None:
    rows = [{**item, "seen": seen} for item, seen in zip(ITEMS, ("member", "nonmember", None), strict=True)]
    changes = {"label_column": "seen", "label_values": {"member": 1, "nonmember": 0}, "design": "randomised"}
    report = built(tmp_path, rows, template=BOOLQ, **changes)
    assert report.examples.column("label").to_pylist() == [1, 0, None]
    rows[1]["seen"] = "perhaps"
    report_rows = [*rows, {**ITEMS[1], "question": "Is it?", "seen": "nonmember"}]
    report = built(tmp_path, report_rows, template=BOOLQ, **changes)
    assert [entry.reason for entry in report.skipped] == ["its label is 'perhaps', not member, nonmember or null"]
    with pytest.raises(DataError, match=r"all 1 labelled rows of .* are members"):
        built(tmp_path, rows[:1], template=BOOLQ, **changes)


def test_where_selects_rows_and_counts_the_others(tmp_path: Path) -> None:
    report = built(tmp_path, ITEMS, template=BOOLQ, where={"answer": False})
    assert report.counts["texts"] == 2
    assert report.texts_left_out == {"not selected by `where`": 1}
    assert report.skipped == ()
    with pytest.raises(DataError, match="no column 'language'; the columns are: question, answer"):
        built(tmp_path, ITEMS, template=BOOLQ, where={"language": "en"})
    with pytest.raises(DataError, match=r"none of the 0 rows can be used\. 3 other rows are not selected by `where`"):
        built(tmp_path, ITEMS, template=BOOLQ, where={"id": "z"})


@pytest.mark.parametrize("seed", range(3))
def test_the_selection_depends_only_on_seed_and_texts(tmp_path: Path, seed: int) -> None:
    rows = [{"question": f"{name}?", "answer": name} for name in "abcdefghij"]
    first = built(tmp_path, rows, max_texts=4)
    random.Random(seed).shuffle(rows)
    second = built(tmp_path, rows, max_texts=4)
    ids = [set(report.examples.column("example_id").to_pylist()) for report in (first, second)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 4
    assert first.texts_left_out == {"beyond the limit max_texts": 6}
    other = built(tmp_path, rows, max_texts=4, seed=6)
    assert set(other.examples.column("text").to_pylist()) != set(first.examples.column("text").to_pylist())


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ row.update({'a': 1}) }}", "unsafe"),
        ("{{ range(10 ** 9)|list }}", "Range too big"),
    ],
)
def test_a_template_stays_in_its_sandbox(template: str, told: str) -> None:
    with pytest.raises(UnusableRowError, match=told):
        RowTemplate(template).fill({"question": "x"})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"template": "{{ question"}, "template is not a valid Jinja2 template"),
        ({"answer": "{{ answer"}, "answer is not a valid Jinja2 template"),
        ({"words": 32}, "words: must be any"),
        ({"split": "test_{words}"}, "is replaced by the length, but words is any"),
        ({"label_column": "seen"}, "key 'design' is missing. .*randomised \\(chance decided"),
        ({"design": "temporal"}, "'design: temporal' requires labels"),
        ({"files": ["../up.jsonl"], "split": None}, "must be a path inside the data set's folder"),
        ({"files": ["a.jsonl"]}, "one of split and files"),
        ({"package": {"distribution": "x", "file": "y"}}, "exactly one of hub, path and package"),
        ({"package": {"distribution": "x", "file": "y", "version": "new"}, "path": None}, "'new' is not a version"),
        ({"package": {"distribution": "x", "file": "y"}, "path": None}, "package already names a file"),
        ({"split": "{subset}"}, "subset is missing"),
        ({"date_kind": "release"}, "date_kind requires date_column"),
    ],
)
def test_mistakes_in_the_entry_are_reported(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        templated_spec(**changes)
