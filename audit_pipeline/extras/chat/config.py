"""The entries of config/chat_models.yaml: the fields of chat models and their validation."""

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
_TOKENS_PER_PRICE = 1_000_000
_ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
}
"""The addresses of the providers. All other servers need a ``url``.

The addresses are fixed here, so that no environment variable can redirect the texts.
"""


class ChatModel(ServerSettings):
    """A chat model: its server, its prices and the limits of one run."""

    name: str
    model: Text = Field(
        description="openai/NAME for every server with OpenAI's interface, anthropic/NAME or gemini/NAME"
    )
    interface: Interface = Field(
        default="chat", description="chat, or completions for models that only continue a text"
    )
    system_prompt: str | None = Field(
        default=None, description="system prompt that precedes every prompt; null: no system prompt"
    )
    temperature: Annotated[float, Field(gt=0, le=2)] | None = Field(
        default=1.0,
        description="temperature of the randomly drawn answers; the first answer has temperature 0; null: the model "
        "accepts no temperature (GPT-5 and other reasoning models), so that its first answer is also drawn randomly",
    )
    # An answer needs room for a near stretch of 40 words in any language.
    answer_tokens: Annotated[int, Field(ge=100)] = Field(
        default=400, description="maximum number of tokens of an answer"
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(
        default=4, description="maximum number of simultaneous requests"
    )
    price_in: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million prompt tokens; null: no cost is computed"
    )
    price_out: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million answer tokens; null: no cost is computed"
    )
    max_requests: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="maximum number of requests of one run; null: no limit"
    )
    notes: str | None = Field(default=None, description="notes for readers of the file")

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        provider, _, model = self.model.partition("/")
        if provider not in _ADDRESSES or not model:
            raise ValueError(
                f"model: '{self.model}' is invalid. Write openai/NAME (for every server with OpenAI's interface), "
                "anthropic/NAME or gemini/NAME."
            )
        if self.url is None and self.key_env is None:
            raise ValueError(
                "key_env and url are both missing, but a commercial provider requires an API key. Set key_env to the "
                "environment variable that contains the key, or set url to the address of your own server."
            )
        if (self.price_in is None) != (self.price_out is None):
            raise ValueError("Only one of price_in and price_out is set. Set both prices or none.")
        if self.max_cost is not None and self.price_in is None:
            raise ValueError("max_cost requires price_in and price_out. Set both prices, or remove max_cost.")
        return self

    @property
    def fingerprint(self) -> str:
        """Return the digest that identifies the model: its name, address, interface and revision."""
        return digest("chat", self.model, self.url, self.interface, self.revision)

    @property
    def address(self) -> str:
        """Return the address of the server: ``url`` or the provider's address."""
        return self.url or _ADDRESSES[self.model.partition("/")[0]]

    def cost_of(self, prompt_tokens: int, output_tokens: int) -> float | None:
        """Return the cost of the tokens, or None if the entry has no prices."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + output_tokens * self.price_out) / _TOKENS_PER_PRICE


def _build_entry(name: str, fields: Any, folder: Path) -> ChatModel:
    problem = explain_invalid_partition("model", name)
    if problem is not None:
        raise InvalidEntryError([Fault((), problem)])
    return validate_as(ChatModel, {**fields, "name": name})


FILE = EntryFile(
    FILE_NAME,
    "chat_models",
    "chat model",
    "it lists the chat models that can be asked",
    _build_entry,
    is_optional=True,
    dimension="chat_model",
)


def load_chat_models(folder: Path | None = None) -> Entries[ChatModel]:
    """Return the entries of chat_models.yaml, or no entries if the file is missing.

    Raises:
        ConfigError: If no entry can be read.
    """
    return FILE.load(folder)
