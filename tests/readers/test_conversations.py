"""Conversations in the rows of a file: their columns, their messages, and rows that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_files import write_rows

from audit_pipeline.errors import DataError
from audit_pipeline.readers.conversations import ConversationStream, Message, read_conversation, render_plainly
from audit_pipeline.readers.formats import open_scored_texts

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Red?"},
    {"role": "assistant", "content": "Blue."},
    {"role": "user", "content": "Green?"},
    {"role": "assistant", "content": "Grey, too."},
    {"role": "user", "content": "Thanks."},
]
TEXT = "Be brief.\nRed?\nBlue.\nGreen?\nGrey, too."


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("part", "scored"), [("response", ["Blue.", "Grey, too."]), ("last_response", ["Grey, too."]), ("all", None)]
)
def test_each_part_of_messages_is_located(tmp_path: Path, suffix: str, part: Any, scored: list[str] | None) -> None:
    file = write_rows(tmp_path / f"c{suffix}", [{"messages": MESSAGES}])
    [row] = open_scored_texts(file, None, part)
    assert row.text == row.source_text == TEXT
    assert scored == (None if row.spans is None else [TEXT[start:end] for start, end in row.spans])


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
@pytest.mark.parametrize("columns", [("prompt", "response"), ("question", "answer"), ("Question", "ANSWER")])
def test_an_answer_follows_its_prompt_on_a_new_line(tmp_path: Path, suffix: str, columns: tuple[str, str]) -> None:
    row = dict(zip(columns, ("Red?", "Blue."), strict=True))
    [read] = open_scored_texts(write_rows(tmp_path / f"c{suffix}", [row]), None, None)
    assert (read.text, read.spans) == ("Red?\nBlue.", ((5, 10),))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_prompt_and_completion_may_be_lists_of_messages(tmp_path: Path, suffix: str) -> None:
    row = {"prompt": MESSAGES[:2], "completion": MESSAGES[2:]}
    if suffix == ".csv":
        row = {name: json.dumps(value) for name, value in row.items()}
    [read] = open_scored_texts(write_rows(tmp_path / f"c{suffix}", [row]), None, "last_response")
    assert (read.text, read.spans) == (TEXT, ((28, 38),))
    [read] = open_scored_texts(write_rows(tmp_path / f"d{suffix}", [{**row, "completion": "[Blue]"}]), None, None)
    assert read.text == "Be brief.\nRed?\n[Blue]"


def test_messages_of_a_csv_are_json(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "c.csv", [{"messages": json.dumps(MESSAGES)}])
    assert [row.text for row in open_scored_texts(file, None, None)] == [TEXT]


def test_a_text_column_comes_before_conversations(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "c.jsonl", [{"text": "a text", "prompt": "Red?", "response": "Blue."}])
    assert [row.text for row in open_scored_texts(file, None, None)] == ["a text"]
    assert [row.text for row in open_scored_texts(file, "response", None)] == ["Blue."]
    stream = open_scored_texts(file, None, "all")
    assert isinstance(stream, ConversationStream)
    assert [row.text for row in stream] == ["Red?\nBlue."]
    assert stream.note == "conversations in prompt and response; scored: the whole text"


def test_a_file_without_conversations_is_refused(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "c.jsonl", [{"text": "a text", "prompt": "Red?"}])
    with pytest.raises(
        DataError, match="one of these sets of columns: messages; prompt and response; prompt and completion; "
    ):
        open_scored_texts(file, None, "response")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": []}, "has no message with the role assistant"),
        ({"messages": MESSAGES[:2]}, "has no message with the role assistant"),
        ({"messages": "Red? Blue."}, "is not a list of messages in JSON"),
        ({"messages": None}, "is not a list of messages"),
        ({"messages": 3}, "is not a list of messages"),
        ({"messages": [{"content": "Blue."}]}, "message 1 of column 'messages' has no role"),
        ({"messages": ["Blue."]}, "message 1 of column 'messages' has no role"),
        ({"messages": [{"role": "assistant", "content": ""}]}, "message 1 of column 'messages' is empty"),
        ({"messages": [{"role": "assistant"}]}, "message 1 of column 'messages' is null"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, *MESSAGES[2:3]]},
            "message 1 of column 'messages' is a list with other items than texts, such as pictures",
        ),
        (
            {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
            "message 1 of column 'messages' calls a tool, and conversations with tools are not supported",
        ),
        ({"messages": [{"role": "assistant", "content": [{"type": "text", "text": None}]}]}, "other items than texts"),
        ({"messages": "[" * 200_000}, "is not a list of messages in JSON"),
        ({"prompt": [{"role": "user"}], "response": "Blue."}, "message 1 of column 'prompt' is null"),
        ({"prompt": ["Red?"], "response": "Blue."}, "column 'prompt' is a list"),
        ({"prompt": MESSAGES[:4], "response": "Blue."}, "column 'prompt' contains an answer"),
        ({"prompt": MESSAGES[:2], "completion": MESSAGES[:1]}, "has no message with the role assistant"),
        ({"prompt": "Red?", "response": " "}, "column 'response' is empty"),
        ({"prompt": None, "response": "Blue."}, "column 'prompt' is null"),
        ({"question": "Red?", "answer": 4}, "column 'answer' is not a string but int"),
    ],
)
def test_an_unusable_conversation_is_skipped_with_its_reason(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    good = {name: MESSAGES if name == "messages" else "Red?" for name in row}
    stream = open_scored_texts(write_rows(tmp_path / "c.jsonl", [good, row]), None, None)
    assert len(list(stream)) == 1
    [skipped] = stream.skipped.first
    assert skipped.location == "c.jsonl:2"
    assert reason in skipped.reason


def test_the_content_of_a_message_may_be_a_list_of_texts() -> None:
    parts = [{"type": "text", "text": "Bl"}, {"type": "text", "text": "ue."}]
    messages = [{"role": "user", "content": "Red?"}, {"role": "assistant", "content": parts}]
    assert read_conversation({"messages": messages}, ["messages"])[-1] == Message("assistant", "Blue.")


def test_messages_after_the_last_answer_are_not_read() -> None:
    messages = [*MESSAGES[1:3], {"role": "user", "content": ""}, {"role": "tool", "content": None}]
    assert len(read_conversation({"messages": messages}, ["messages"])) == 2


def test_a_conversation_may_begin_with_an_answer() -> None:
    assert render_plainly([Message("assistant", "Blue.")]).answers == ((0, 5),)
