"""Conversations in the rows of a file, whose answers are scored.

A row contains a conversation in one of four forms: the column ``messages`` with a list of objects that have ``role``
and ``content``; the columns ``prompt`` and ``response``; ``prompt`` and ``completion``; or the columns ``question`` and
``answer`` of a test set. The values of two columns are strings, or lists of messages as the trainer TRL reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeGuard

from audit_pipeline.readers.row_stream import RowStream, TextStream
from audit_pipeline.readers.text_rows import (
    Row,
    Skipped,
    TextRow,
    UnusableRowError,
    explain_unusable_text,
    find_column,
)

ScoredPart = Literal["response", "last_response", "all"]
"""The part of a conversation that is scored: all answers, the last answer, or the whole text."""
SCORED_PARTS: Mapping[ScoredPart, str] = {
    "response": "all answers",
    "last_response": "the last answer",
    "all": "the whole text",
}
ASSISTANT = "assistant"
_COLUMN_FORMS = (("messages",), ("prompt", "response"), ("prompt", "completion"), ("question", "answer"))
CONVERSATION_COLUMNS = "; ".join(" and ".join(form) for form in _COLUMN_FORMS)
"""The sets of columns that contain conversations, for messages."""


class Message(NamedTuple):
    """One message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class RenderedConversation:
    """A conversation as the text that a model reads.

    Attributes:
        text: The text. It ends with the last answer.
        answers: Start and end (exclusive) of each answer in the text, in characters.
    """

    text: str
    answers: tuple[tuple[int, int], ...]


def select_scored_spans(rendered: RenderedConversation, part: ScoredPart) -> tuple[tuple[int, int], ...] | None:
    """Return the start and end (exclusive) of each scored answer, in characters. None means the whole text."""
    if part == "all":
        return None
    if part == "last_response":
        return rendered.answers[-1:]
    return rendered.answers


Render = Callable[[Sequence[Message]], RenderedConversation]
"""A function that renders a conversation whose last message is an answer. It raises UnusableRowError."""


def render_plainly(messages: Sequence[Message]) -> RenderedConversation:
    """Render a conversation without a template. Each message begins on a new line, and roles are omitted."""
    text = ""
    answers = []
    for message in messages:
        if text:
            text += "\n"
        if message.role == ASSISTANT:
            answers.append((len(text), len(text) + len(message.content)))
        text += message.content
    return RenderedConversation(text, tuple(answers))


def find_conversation_columns(columns: Sequence[str]) -> tuple[str, ...] | None:
    """Return the columns of a file that contain conversations, regardless of upper and lower case, or None."""
    for form in _COLUMN_FORMS:
        found = [find_column(columns, name) for name in form]
        if None not in found:
            return tuple(filter(None, found))
    return None


def read_conversation(values: Mapping[str, object], columns: Sequence[str]) -> list[Message]:
    """Return the messages of a row up to its last answer.

    Args:
        values: The values of the row.
        columns: The columns of the conversation (:func:`find_conversation_columns`).

    Raises:
        UnusableRowError: If the row has no answer, or if a message is unusable.
    """
    if len(columns) == 1:
        return _read_messages(values.get(columns[0]), columns[0])
    question, answer = columns
    answers = _parse_list(values.get(answer))
    if _is_list_of_messages(answers):
        turns = _read_messages(answers, answer)
    else:
        turns = [Message(ASSISTANT, _read_content(answers, f"column '{answer}'"))]
    return [*_read_prompt(values.get(question), question), *turns]


def _is_list_of_messages(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return bool(value) and all(isinstance(message, Mapping) and "role" in message for message in value)


def _parse_list(value: object) -> object:
    """Return the list of messages that a string contains as JSON, or the value itself."""
    if isinstance(value, str) and value.startswith("["):
        with suppress(ValueError, RecursionError):
            parsed = json.loads(value)
            if _is_list_of_messages(parsed):
                return parsed
    return value


def _read_prompt(value: object, column: str) -> list[Message]:
    value = _parse_list(value)
    if not _is_list_of_messages(value):
        return [Message("user", _read_content(value, f"column '{column}'"))]
    messages = [_read_message(message, number, column) for number, message in enumerate(value, start=1)]
    if any(message.role == ASSISTANT for message in messages):
        # These answers are not part of what a trainer of TRL optimises.
        raise UnusableRowError(
            f"column '{column}' contains an answer. Put the whole conversation into the column messages, and score its "
            "last answer"
        )
    return messages


def _read_messages(value: object, column: str) -> list[Message]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise UnusableRowError(f"column '{column}' is not a list of messages in JSON") from None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise UnusableRowError(f"column '{column}' is not a list of messages")
    roles = []
    for number, message in enumerate(value, start=1):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise UnusableRowError(f"message {number} of column '{column}' has no role")
        roles.append(message["role"])
    if ASSISTANT not in roles:
        raise UnusableRowError(f"column '{column}' has no message with the role {ASSISTANT}")
    # Messages after the last answer are not read.
    n_messages = len(roles) - roles[::-1].index(ASSISTANT)
    return [_read_message(message, number, column) for number, message in enumerate(value[:n_messages], start=1)]


def _read_message(message: Mapping[str, object], number: int, column: str) -> Message:
    role = message.get("role")
    if not isinstance(role, str):
        raise UnusableRowError(f"message {number} of column '{column}' has no role")
    label = f"message {number} of column '{column}'"
    if message.get("content") is None and message.get("tool_calls"):
        raise UnusableRowError(f"{label} calls a tool, and conversations with tools are not supported")
    return Message(role, _read_content(message.get("content"), label))


def _read_content(value: object, label: str) -> str:
    """Return the text of a message. The content may also be a list of parts that are all texts."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        texts = [part["text"] for part in value if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        if len(texts) != len(value):
            raise UnusableRowError(f"{label} is a list with other items than texts, such as pictures or messages")
        value = "".join(texts)
    problem = explain_unusable_text(value)
    if problem is not None or not isinstance(value, str):
        raise UnusableRowError(f"{label} {problem}")
    return value


class ConversationStream(TextStream):
    """The conversations of a file in file order, as texts with scored parts.

    Attributes:
        conversation_columns: The columns of the conversations.
        scored_part: The scored part.
    """

    def __init__(
        self,
        rows: RowStream,
        conversation_columns: Sequence[str],
        scored_part: ScoredPart,
        extra_columns: Sequence[str] = (),
        render: Render = render_plainly,
    ) -> None:
        """Store the rows and the columns to read. The file is read only when texts are requested.

        Args:
            rows: The rows of the file.
            conversation_columns: The columns of the conversations.
            scored_part: The scored part.
            extra_columns: Other columns that are read if they exist.
            render: The function that renders a conversation.
        """
        super().__init__(rows, None, extra_columns)
        self.conversation_columns = tuple(conversation_columns)
        self.scored_part = scored_part
        self._render = render

    @property
    def scores_parts(self) -> bool:
        """Return True if only parts of the texts are scored."""
        return self.scored_part != "all"

    @property
    def note(self) -> str | None:
        """Return a message about the columns of the conversations and the scored part."""
        return f"conversations in {' and '.join(self.conversation_columns)}; scored: {SCORED_PARTS[self.scored_part]}"

    def render_with(self, render: Render) -> ConversationStream:
        """Return a stream of the same file that renders conversations with another function."""
        return ConversationStream(self.rows, self.conversation_columns, self.scored_part, self._extra_columns, render)

    def entries(self) -> Iterator[TextRow | Skipped]:
        """Yield every row with the text of its conversation, or with the reason for skipping it.

        Raises:
            UnreadableFileError: If :meth:`RowStream.entries` raises it.
        """
        selected = None
        if self.rows.columns is not None:
            wanted = dict.fromkeys((*self.conversation_columns, *self._extra_columns))
            selected = [name for name in wanted if name in self.rows.columns]
        for entry in self.rows.entries(selected):
            yield self._read_row(entry)

    def _read_row(self, entry: Row | Skipped) -> TextRow | Skipped:
        if isinstance(entry, Skipped):
            return entry
        try:
            messages = read_conversation(entry.values, self.conversation_columns)
            rendered = self._render(messages)
        except UnusableRowError as error:
            return Skipped(entry.location, entry.index, str(error))
        spans = select_scored_spans(rendered, self.scored_part)
        source_text = render_plainly(messages).text
        return TextRow(entry.location, entry.index, rendered.text, entry.values, spans, source_text)
