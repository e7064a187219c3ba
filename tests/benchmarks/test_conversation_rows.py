"""Benchmarks of conversations: the text and the context of an example, skipped rows, and exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_documents import labelled_spec, templated_spec, words_of, write_jsonl
from made_rows import make_table
from pydantic import ValidationError

from audit_pipeline.benchmarks.build import build
from audit_pipeline.benchmarks.built_benchmark import compute_content_digest, read_built
from audit_pipeline.benchmarks.publish import export
from audit_pipeline.readers.conversations import CONVERSATION_COLUMNS, Message
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read
from audit_pipeline.tables import EXAMPLES, SPLIT_QUALITY

CHAT = [
    {"role": "user", "content": "Red?"},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Green?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "Why?"},
]


def build_labelled(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Any:
    write_jsonl(folder / "rows.jsonl", rows)
    settings = {"split": None, "label_column": None, "exact_words": False, **changes}
    spec = labelled_spec(32, path=folder / "rows.jsonl", **settings)
    return build(spec, DataPaths(folder / "data"), "run")


@pytest.mark.parametrize(
    ("part", "context", "text"),
    [
        ("response", "Red?\n", "Blue.\nGreen?\nFour."),
        ("last_response", "Red?\nBlue.\nGreen?\n", "Four."),
        ("all", None, "Red?\nBlue.\nGreen?\nFour."),
    ],
)
def test_the_text_extends_from_the_first_scored_answer_to_the_last(
    tmp_path: Path, part: str, context: str | None, text: str
) -> None:
    [row] = build_labelled(tmp_path, [{"messages": CHAT}], scored_part=part).examples.to_pylist()
    assert (row["context"], row["text"], row["scored_part"]) == (context, text, part)
    # Messages after the last answer are not read.
    assert json.loads(row["messages"]) == CHAT[:4]
    assert row["words"] == len(text.split())


def test_rows_may_have_any_form_of_conversation_and_others_are_skipped(tmp_path: Path) -> None:
    rows = [
        {"prompt": "Red?", "response": "Blue."},
        {"question": "Green?", "answer": "Four."},
        {"messages": CHAT[:1]},
        {"text": "no conversation"},
    ]
    report = build_labelled(tmp_path, rows, scored_part="response")
    found = [(row["context"], row["text"]) for row in report.examples.to_pylist()]
    assert found == [("Red?\n", "Blue."), ("Green?\n", "Four.")]
    assert [(row.location, row.reason) for row in report.skipped] == [
        ("rows.jsonl:3", "column 'messages' has no message with the role assistant"),
        ("rows.jsonl:4", f"has no conversation. Required columns: {CONVERSATION_COLUMNS}"),
    ]


def test_different_conversations_may_have_the_same_answer(tmp_path: Path) -> None:
    rows = [{"question": f"Is {number} odd?", "answer": "Yes.", "label": number % 2} for number in range(8)]
    report = build_labelled(tmp_path, rows, label_column="label", scored_part="response", design="randomised")
    assert report.examples.num_rows == len(set(report.examples["example_id"].to_pylist())) == 8
    assert report.failed == ()


@pytest.mark.parametrize("part", ["response", "all"])
def test_a_shared_message_of_the_system_makes_no_conversations_equal(tmp_path: Path, part: str) -> None:
    system = {"role": "system", "content": words_of("rule", 200)}
    rows = []
    for number in range(8):
        talk = [
            {"role": "user", "content": words_of(f"q{number}", 6)},
            {"role": "assistant", "content": words_of(f"a{number}", 6)},
        ]
        rows.append({"messages": [system, *talk], "label": number % 2})
    # This row differs from the first row in one word, and is on the other side.
    near = [system, rows[0]["messages"][1], {"role": "assistant", "content": f"{words_of('a0', 5)} otherwise"}]
    rows.append({"messages": near, "label": 1})
    report = build_labelled(
        tmp_path,
        rows,
        label_column="label",
        scored_part=part,
        design="randomised",
        near_duplicate_threshold=0.3,
    )
    assert {row.location for row in report.skipped} == {"rows.jsonl:1", "rows.jsonl:9"}
    # Conversations that share their beginning are different documents.
    assert len(set(report.examples["group"].to_pylist())) == 7


def test_a_conversation_on_both_sides_is_left_out_even_if_its_system_message_differs(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": words_of("q", 6)}, {"role": "assistant", "content": words_of("a", 6)}]
    system = {"role": "system", "content": words_of("rule", 200)}
    rows = [{"messages": talk, "label": 0}, {"messages": [system, *talk], "label": 1}]
    for number in range(4):
        other = [{**talk[0], "content": words_of(f"q{number}", 6)}, {**talk[1], "content": words_of(f"a{number}", 6)}]
        rows.append({"messages": other, "label": number % 2})
    report = build_labelled(tmp_path, rows, label_column="label", scored_part="all", design="randomised")
    assert {row.location for row in report.skipped} == {"rows.jsonl:1", "rows.jsonl:2"}


def test_a_filled_template_is_the_question_of_its_answer(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "test.jsonl", [{"q": "Which?", "a": "boron"}, {"q": "Who?", "a": None}])
    templates = {"template": "Q: {{ q }}", "answer": "{{ a }}"}
    spec = templated_spec(path=tmp_path, scored_part="response", **templates)
    report = build(spec, DataPaths(tmp_path / "data"), "run")
    [row] = report.examples.to_pylist()
    assert (row["context"], row["text"]) == ("Q: Which?\n", "boron")
    assert json.loads(row["messages"]) == [
        Message("user", "Q: Which?")._asdict(),
        Message("assistant", "boron")._asdict(),
    ]
    assert [skipped.reason for skipped in report.skipped] == ["its answer is empty"]


def test_entries_with_contradictory_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="scored_part contradicts text_column"):
        labelled_spec("any", scored_part="all", text_column="text", split="test")
    with pytest.raises(ValidationError, match="scored_part requires answer"):
        templated_spec(scored_part="response")
    with pytest.raises(ValidationError, match="last_response"):
        labelled_spec("any", scored_part="answers", split="test")


def test_the_roles_and_the_scored_part_are_part_of_the_content_digest(tmp_path: Path) -> None:
    system = [{"role": "system", "content": "Red?"}, CHAT[1]]
    digests = set()
    for number, (messages, part) in enumerate([(CHAT[:2], "response"), (system, "response"), (CHAT[:2], "all")]):
        report = build_labelled(tmp_path / str(number), [{"messages": messages}], scored_part=part)
        digests.add(compute_content_digest(report.examples))
    assert len(digests) == 3


def test_an_export_is_read_back_as_the_same_conversations(tmp_path: Path) -> None:
    rows = [{"messages": CHAT}, {"prompt": "Red?", "response": "Blue."}]
    build_labelled(tmp_path, rows, scored_part="response", licence="CC0-1.0")
    paths = DataPaths(tmp_path / "data")
    built = read_built(paths, "rows_32")
    # The export itself compares the digests of the written files with that of the benchmark.
    measured = {"measure": "blind_auroc", "part": "words", "side": "both", "value": 0.61, "n": 4}
    quality = make_table(SPLIT_QUALITY, [{**measured, "split_verdict": "undetermined"}])
    digests = export({built: quality}, tmp_path / "out", paths, hub=None)
    assert list(digests.values()) == [compute_content_digest(read(paths, EXAMPLES, "rows_32", label="rows"))]
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "scored_part: response" in card
    assert "| `messages` |" in card
