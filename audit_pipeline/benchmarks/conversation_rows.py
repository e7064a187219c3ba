"""Conversations as rows of a benchmark: the text and the context that stand for them without a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from audit_pipeline.config.validation import StrictSettings
from audit_pipeline.readers.conversations import (
    CONVERSATION_COLUMNS,
    Message,
    ScoredPart,
    find_conversation_columns,
    read_conversation,
    render_plainly,
    select_scored_spans,
)
from audit_pipeline.readers.text_rows import Row, UnusableRowError


class ConversationSettings(StrictSettings):
    """Setting of benchmarks that can contain conversations."""

    scored_part: ScoredPart | None = Field(
        default=None,
        description="scored part of conversations: response (all answers), last_response (the last answer) or all (the "
        "whole text); each model reads a conversation as its chat template renders it; None: the rows are plain texts",
    )


def read_conversation_fields(row: Row, part: ScoredPart) -> dict[str, Any]:
    """Read the conversation of a row, as fields of LabelledText by name.

    Raises:
        UnusableRowError: If the row has no conversation, or if a message is unusable.
    """
    filled_columns = [name for name, value in row.values.items() if value is not None]
    columns = find_conversation_columns(filled_columns)
    if columns is None:
        raise UnusableRowError(f"has no conversation. Required columns: {CONVERSATION_COLUMNS}")
    return build_conversation_fields(read_conversation(row.values, columns), part)


def build_conversation_fields(messages: Sequence[Message], part: ScoredPart) -> dict[str, Any]:
    """Return the fields of LabelledText that describe a conversation, by name.

    The text extends from the first scored answer to the last, without a chat template. With several scored answers it
    includes the messages between them. The context is everything before it.
    """
    rendered = render_plainly(messages)
    spans = select_scored_spans(rendered, part)
    start = 0
    if spans is not None:
        start = spans[0][0]
    return {
        "text": rendered.text[start:],
        "context": rendered.text[:start] or None,
        "messages": json.dumps([message._asdict() for message in messages], ensure_ascii=False),
        "scored_part": part,
    }


def render_without_system(stored: str) -> str:
    """Return the plain form of an example's messages without those of the system."""
    return render_plainly([message for message in parse_messages(stored) if message.role != "system"]).text


def parse_messages(stored: str) -> list[Message]:
    """Return the messages of an example from its column ``messages``."""
    entries: list[Mapping[str, str]] = json.loads(stored)
    return [Message(entry["role"], entry["content"]) for entry in entries]
