"""config/chat_models.yaml: the fields of models that answer in words, and their validation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import Text, validate_as
from audit_pipeline.models.server_settings import ServerSettings
from audit_pipeline.store.paths import explain_invalid_partition
from audit_pipeline.tables import digest

FILE_NAME = "chat_models.yaml"
Interface = Literal["chat", "completions"]
_PER = 1_000_000
_ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
}
"""The providers that can be named, and where each speaks OpenAI's interface: said here, so that no variable of the
environment leads the texts elsewhere. All other servers have an address of their own."""


class ChatModel(ServerSettings):
    """A model that answers in words: where it is, what it costs, and the most that one run may ask."""

    name: str
    model: Text = Field(
        description="openai/NAME for every server that speaks OpenAI's interface, anthropic/NAME, gemini/NAME"
    )
    interface: Interface = Field(default="chat", description="chat, or completions for models that only go on")
    system_prompt: str | None = Field(default=None, description="the system prompt before every prompt; None: nothing")
    temperature: Annotated[float, Field(gt=0, le=2)] | None = Field(
        default=1.0,
        description="of the draws; the first answer is asked for at 0. null: for models that take no temperature "
        "(GPT-5 and others that reason), whose first answer is a draw like all others",
    )
    # The 40 words that a near stretch takes have to come, in any language.
    answer_tokens: Annotated[int, Field(ge=100)] = Field(default=400, description="the most tokens of an answer")
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(default=4, description="requests at a time")
    price_in: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million tokens of prompts"
    )
    price_out: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million tokens of answers"
    )
    max_requests: Annotated[int, Field(ge=1)] | None = Field(default=None, description="the most requests of one run")
    notes: str | None = Field(default=None, description="whatever a reader should know")

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        provider, _, model = self.model.partition("/")
        if provider not in _ADDRESSES or not model:
            raise ValueError(
                "model is openai/NAME (every server that speaks OpenAI's interface, at its url), anthropic/NAME or "
                "gemini/NAME"
            )
        if self.url is None and self.key_env is None:
            raise ValueError("a provider takes a key: name the variable that holds it as key_env, or give a url")
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("price_in and price_out go together")
        if self.max_cost is not None and self.price_in is None:
            raise ValueError("max_cost goes with price_in and price_out")
        return self

    @property
    def fingerprint(self) -> str:
        """What the model is known by: its address, and what is known of its weights."""
        return digest("chat", self.model, self.url, self.interface, self.revision)

    @property
    def address(self) -> str:
        """Where it is asked: ``url``, else the provider's address."""
        return self.url or _ADDRESSES[self.model.partition("/")[0]]

    def cost_of(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """Return what so many tokens cost by the prices; None without."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + output_tokens * self.price_out) / _PER


def _build_entry(name: str, fields: Any, folder: Path) -> ChatModel:
    if (problem := explain_invalid_partition("model", name)) is not None:
        raise InvalidEntryError([Fault((), problem)])
    return validate_as(ChatModel, {**fields, "name": name})


FILE = EntryFile(
    FILE_NAME,
    "chat_models",
    "chat model",
    "it says which models that answer in words can be asked",
    _build_entry,
    is_optional=True,
    dimension="chat_model",
)


def load_chat_models(folder: Path | None = None) -> Entries[ChatModel]:
    """Return the entries of chat_models.yaml; none where there is no such file.

    Raises ConfigError, naming the file, where none of it can be read.
    """
    return FILE.load(folder)
