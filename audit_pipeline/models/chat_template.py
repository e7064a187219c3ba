"""The chat template of a model, which renders a conversation as the text that the model was trained on.

The template is in chat_template.jinja, in tokenizer_config.json, or in the metadata of a .gguf. transformers renders it
in its sandbox. No code of the model runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from audit_pipeline.errors import ModelError, to_one_line
from audit_pipeline.models.locate import LocatedModel
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.conversations import (
    ASSISTANT,
    Message,
    Render,
    RenderedConversation,
    render_plainly,
)
from audit_pipeline.readers.text_rows import UnusableRowError

_TEMPLATE_FILE = "chat_template.jinja"
_CONFIG_FILE = "tokenizer_config.json"
_TOKEN_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token")
# Some templates state the current date. A fixed date gives the same text on every day. This is the date that the
# templates of Llama 3 state if no date is known.
_DATE = "26 Jul 2024"
_FIXED_DATE = f"{{% macro strftime_now(format) %}}{_DATE}{{% endmacro %}}"


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template.

    Attributes:
        source: The template in Jinja.
        tokens: The special tokens that the template can insert, by role, such as ``bos_token``.
    """

    source: str
    tokens: Mapping[str, str]

    def fill(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """Return the text of messages.

        Args:
            messages: The messages.
            add_generation_prompt: Add the text that precedes an answer.

        Raises:
            UnusableRowError: If the template refuses the messages, such as a role that it does not know.
        """
        # transformers takes a second to import.
        from jinja2 import TemplateError  # noqa: PLC0415
        from transformers.utils.chat_template_utils import render_jinja_template  # noqa: PLC0415

        try:
            [text], _ = render_jinja_template(
                [[message._asdict() for message in messages]],
                chat_template=_FIXED_DATE + self.source,
                add_generation_prompt=add_generation_prompt,
                date_string=_DATE,
                **self.tokens,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            raise UnusableRowError(
                f"the chat template of the model refuses the conversation: {to_one_line(error)}"
            ) from error
        return str(text)


def build_renderer(model: TokenizedModel) -> Render:
    """Return the function that renders conversations for a model.

    Without a chat template, conversations have the plain form (:func:`conversations.render_plainly`).

    Raises:
        ModelError: If a file with the template cannot be read.
    """
    template = read_chat_template(model.located)
    if template is None:
        return render_plainly
    return partial(render_conversation, template, start_token=_find_added_start_token(model))


def read_chat_template(located: LocatedModel) -> ChatTemplate | None:
    """Read the chat template in a model's files, or return None if they have none.

    The files of an adapter take precedence over those of its base.

    Raises:
        ModelError: If a file cannot be read.
    """
    for folder in filter(None, (located.adapter, located.folder)):
        template = _read_from_folder(folder)
        if template is not None:
            return template
    if located.gguf is not None:
        return _read_from_gguf(located.gguf)
    return None


def _read_from_folder(folder: Path) -> ChatTemplate | None:
    try:
        config: Any = {}
        if (folder / _CONFIG_FILE).is_file():
            config = json.loads((folder / _CONFIG_FILE).read_text(encoding="utf-8"))
        source = config.get("chat_template")
        if (folder / _TEMPLATE_FILE).is_file():
            source = (folder / _TEMPLATE_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"the chat template in {folder} cannot be read: {error}") from error
    if isinstance(source, list):
        # Models with several templates list them by name.
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if not isinstance(source, str):
        return None
    return ChatTemplate(source, dict(_iterate_tokens(config)))


def _iterate_tokens(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for role in _TOKEN_ROLES:
        token = config.get(role)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            yield role, token


def _read_from_gguf(file: Path) -> ChatTemplate | None:
    # The package gguf imports numpy, which takes time.
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

    An answer is located after the text that the template renders of the earlier messages. What the template adds after
    the last answer, such as an end token, is cut off.

    Args:
        template: The template.
        messages: The messages. The last one is an answer.
        start_token: A start token that is added to the text later. It is removed from the beginning of the text.

    Raises:
        UnusableRowError: If the template refuses, changes or drops a message.
    """
    text = template.fill(messages, add_generation_prompt=False)
    answers = []
    position = 0
    for number, message in enumerate(messages, start=1):
        if message.role == ASSISTANT:
            position = max(position, _find_end_of_prompt(template, messages[: number - 1], text, number))
        start = _find_content(text, message, position, number)
        position = start + len(message.content)
        if not text.startswith(message.content, start):
            position = start + len(message.content.strip())
        if message.role == ASSISTANT:
            answers.append((start, position))
    text = text[:position]
    n_removed = 0
    if start_token is not None and text.startswith(start_token):
        n_removed = len(start_token)
    spans = [(start - n_removed, end - n_removed) for start, end in answers]
    return RenderedConversation(text[n_removed:], tuple(spans))


def _find_end_of_prompt(template: ChatTemplate, earlier: Sequence[Message], text: str, number: int) -> int:
    """Return the position in a rendered conversation after the earlier messages and the prompt for the answer."""
    for add_generation_prompt in (True, False):
        prompt = template.fill(earlier, add_generation_prompt=add_generation_prompt)
        if text.startswith(prompt):
            return len(prompt)
    raise UnusableRowError(
        f"the chat template of the model changes the messages before message {number} if that message follows"
    )


def _find_content(text: str, message: Message, position: int, number: int) -> int:
    """Return the start of a message's content in a rendered conversation. Templates may strip blanks around it."""
    for content in (message.content, message.content.strip()):
        start = text.find(content, position)
        if start >= 0:
            return start
    raise UnusableRowError(f"the chat template of the model drops or changes message {number} (role {message.role})")
