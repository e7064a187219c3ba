"""The chat template of a model, which renders a conversation as the text that the model was trained on.

The template is in chat_template.jinja, in tokenizer_config.json, or in the metadata of a .gguf. transformers renders it
in its sandbox. No code of the model runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from audit_pipeline.errors import ModelError, to_one_line
from audit_pipeline.models.locate import LocatedModel
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import ASSISTANT, Message, Render, RenderedConversation
from audit_pipeline.readers.text_rows import UnusableRowError
from audit_pipeline.store.files import read_json
from audit_pipeline.tables import digest

_TEMPLATE_FILE = "chat_template.jinja"
_CONFIG_FILE = "tokenizer_config.json"
_TOKENS_FILE = "special_tokens_map.json"
_TOKEN_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
# Some templates state the current date. A fixed date gives the same text on every day. This is the date that the
# templates of Llama 3 state if no date is known.
_DATE = date(2024, 7, 26)
_DATE_STRING = f"{_DATE:%d %b %Y}"
_DATE_CODES = ("%d", "%m", "%b", "%B", "%y", "%Y", "%a", "%A")
# Expressions of a template raise these errors if a message is unsuitable.
_TEMPLATE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
# A mark that stands for the content of a message: its number between two private-use characters.
_MARK = re.compile("\ue000([0-9]+)\ue001")
_END_OF_REASONING = "</think>"


def _build_date_macro() -> str:
    """Return a Jinja macro that formats the fixed date, in place of the function that formats the current time."""
    replacements = "".join(f".replace('{code}', '{_DATE.strftime(code)}')" for code in _DATE_CODES)
    return f"{{% macro strftime_now(format) %}}{{{{ format{replacements} }}}}{{% endmacro +%}}"


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template.

    Attributes:
        source: The template in Jinja.
        tokens: The special tokens that the template can insert, by role, such as ``bos_token``.
    """

    source: str
    tokens: Mapping[str, str]

    def fill(self, messages: Sequence[Message]) -> str:
        """Return the text of messages.

        Raises:
            UnusableRowError: If the template refuses the messages, such as a role that it does not know.
            ModelError: If the template is not valid.
        """
        # transformers takes a second to import.
        from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

        try:
            [text], _ = render_jinja_template(
                [[message._asdict() for message in messages]],
                chat_template=_build_date_macro() + self.source,
                date_string=_DATE_STRING,
                **self.tokens,
            )
        except TemplateSyntaxError as error:
            raise ModelError(f"the chat template of the model is not a valid Jinja2 template: {error}") from error
        except (TemplateError, *_TEMPLATE_ERRORS) as error:
            raise UnusableRowError(
                f"the chat template of the model refuses the conversation: {to_one_line(error)}"
            ) from error
        return str(text)


def build_renderer(model: TokenizedModel) -> Render | None:
    """Return the function that renders conversations for a model, or None if the model has no chat template.

    Raises:
        ModelError: If a file with the template cannot be read.
    """
    template = read_chat_template(model.located)
    if template is None:
        return None
    return partial(render_conversation, template, start_token=_find_added_start_token(model))


def read_chat_template(located: LocatedModel) -> ChatTemplate | None:
    """Read the chat template in a model's files, or return None if they have none.

    The files of an adapter take precedence over those of its base.

    Raises:
        ModelError: If a file cannot be read.
    """
    folders = [located.folder]
    if located.adapter is not None:
        folders.append(located.adapter)
    tokens: dict[str, str] = {}
    source = None
    for folder in folders:
        config = _read_json_object(folder / _CONFIG_FILE)
        tokens |= _find_tokens(_read_json_object(folder / _TOKENS_FILE)) | _find_tokens(config)
        source = _read_source(folder, config) or source
    if source is not None:
        return ChatTemplate(source, tokens)
    if located.gguf is not None:
        return _read_from_gguf(located.gguf)
    return None


def compute_template_version(located: LocatedModel) -> str:
    """Compute a digest of the chat template in a model's files, or return ``none`` if they have none.

    Raises:
        ModelError: If a file cannot be read.
    """
    template = read_chat_template(located)
    if template is None:
        return "none"
    return digest(template.source, dict(template.tokens))[:16]


def _read_json_object(file: Path) -> Mapping[str, Any]:
    """Return the content of a JSON file, or an empty mapping if the file is missing."""
    try:
        content = read_json(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{file} is not a JSON object")
    return content


def _read_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the template in a folder, or None if there is none."""
    file = folder / _TEMPLATE_FILE
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ModelError(f"the chat template {file} cannot be read: {error}") from error
    source = config.get("chat_template")
    if isinstance(source, list):
        # Models with several templates list them by name.
        source_by_name = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = source_by_name.get("default")
    return source if isinstance(source, str) else None


def _find_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens in a configuration by role. A token is a string, or an object with its content."""
    tokens = {}
    for role in _TOKEN_ROLES:
        token = config.get(role)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            tokens[role] = token
    return tokens


def _read_from_gguf(file: Path) -> ChatTemplate | None:
    # The package gguf takes time to import, and few models need it.
    from gguf import GGUFReader  # noqa: PLC0415

    try:
        reader = GGUFReader(file)
        field = reader.get_field("tokenizer.chat_template")
        if field is None:
            return None
        spellings = reader.get_field("tokenizer.ggml.tokens")
        tokens = {}
        for role in _TOKEN_ROLES:
            number = reader.get_field(f"tokenizer.ggml.{role.removesuffix('_token')}_token_id")
            if number is not None and spellings is not None:
                tokens[role] = str(spellings.contents(int(number.contents())))
        return ChatTemplate(str(field.contents()), tokens)
    except (OSError, ValueError, IndexError) as error:
        raise ModelError(f"the chat template in {file} cannot be read: {error}") from error


def _find_added_start_token(model: TokenizedModel) -> str | None:
    """Return the start token that the model's input gets anyway, so that a template need not add it."""
    if model.entry.start_token_policy == "always":
        return model.start_token
    [encoding] = model.tokenizer.encode([""], add_special_tokens=True)
    if not encoding.ids:
        return None
    return model.tokenizer.find_token(encoding.ids[0])


def render_conversation(
    template: ChatTemplate, messages: Sequence[Message], *, start_token: str | None = None
) -> RenderedConversation:
    """Render a conversation with a chat template, and locate its answers.

    The template also renders a copy of the conversation with a mark in place of each content. The text between the
    marks is the markup of the template. It must be the same in both renderings. So each content is where its mark is.
    What the template adds after the last answer, such as an end token, is cut off.

    Args:
        template: The template.
        messages: The messages. The last one is an answer.
        start_token: A start token that is added to the text later. It is removed from the beginning of the text.

    Raises:
        UnusableRowError: If the template refuses, changes or drops a message.
    """
    text = template.fill(messages)
    marked_messages = [Message(message.role, f"\ue000{number}\ue001") for number, message in enumerate(messages)]
    pieces = _MARK.split(template.fill(marked_messages))
    markup = pieces[::2]
    numbers = list(map(int, pieces[1::2]))
    dropped = set(range(len(messages))).difference(numbers)
    if dropped:
        number = min(dropped)
        raise UnusableRowError(
            f"the chat template of the model drops message {number + 1} (role {messages[number].role})"
        )
    answers = []
    position = 0
    for before, number, after in zip(markup[:-1], numbers, markup[1:], strict=True):
        start = position + len(before)
        content = None
        if text.startswith(before, position):
            content = _find_content(text, messages[number].content, start, after)
        if content is None:
            raise UnusableRowError(_describe_change(messages, number))
        position = start + len(content)
        if messages[number].role == ASSISTANT:
            answers.append((start, position))
    end = answers[-1][1]
    n_removed = 0
    if start_token is not None and text.startswith(start_token):
        n_removed = len(start_token)
    spans = [(start - n_removed, stop - n_removed) for start, stop in answers]
    return RenderedConversation(text[n_removed:end], tuple(spans))


def _find_content(text: str, content: str, start: int, after: str) -> str | None:
    """Return the content of a message as it stands in a text before the markup ``after``, or None if it is changed.

    Templates may strip blanks around the content.
    """
    for candidate in (content, content.strip(), content.lstrip("\n"), content.rstrip("\n")):
        if text.startswith(candidate, start) and text.startswith(after, start + len(candidate)):
            return candidate
    return None


def _describe_change(messages: Sequence[Message], number: int) -> str:
    reason = ""
    if any(_END_OF_REASONING in message.content for message in messages):
        reason = f", probably because it removes or moves reasoning that ends with {_END_OF_REASONING}"
    return (
        f"the chat template of the model changes message {number + 1} (role {messages[number].role}) or the text "
        f"before it{reason}"
    )
