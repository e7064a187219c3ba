"""Settings of servers that run models: address, key, limits, and the format of their requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from audit_pipeline.config.validation import StrictSettings

DialectName = Literal["vllm", "sglang", "llama_cpp", "completions"]


@dataclass(frozen=True)
class DialectTraits:
    """Properties that all servers of a dialect share.

    Attributes:
        takes_ids: True if prompts are sent as token ids. None if only a probe of the server can tell.
        server_adds_start_token: See :attr:`Endpoint.server_adds_start_token`.
        names_ids: True if responses contain the ids of the most likely tokens.
        gives_rank: True if responses contain the rank of each token of the text.
        has_plugin: True if the plugin corpus-audit-vllm exists for it, which computes mean and standard deviation.
    """

    takes_ids: bool | None
    server_adds_start_token: bool = False
    names_ids: bool = False
    gives_rank: bool = False
    has_plugin: bool = False


DIALECT_TRAITS: Mapping[DialectName, DialectTraits] = {
    "vllm": DialectTraits(takes_ids=True, names_ids=True, gives_rank=True, has_plugin=True),
    "sglang": DialectTraits(takes_ids=True, names_ids=True),
    "llama_cpp": DialectTraits(takes_ids=False, server_adds_start_token=True),
    "completions": DialectTraits(takes_ids=None),
}


class ServerSettings(StrictSettings):
    """A server of a model: its address, its key, and the limits of one run."""

    url: str | None = Field(
        default=None,
        description="address of the server, such as http://127.0.0.1:8000/v1; None: the provider's address",
    )
    key_env: str | None = Field(
        default=None, description="name of the environment variable that contains the API key; None: no key is sent"
    )
    revision: str | None = Field(
        default=None, description="your label for the version of the weights; another revision is another model"
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(default=8, description="number of concurrent requests")
    timeout_seconds: Annotated[float, Field(gt=0)] = Field(default=120.0, description="seconds to wait for a response")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="maximum number of tokens of one run, prompts and responses; None: no limit"
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="maximum cost of one run, in the currency of the prices; None: no limit"
    )

    @model_validator(mode="after")
    def _require_public_address(self) -> Self:
        if self.url is not None:
            address = urlsplit(self.url)
            if address.scheme not in ("http", "https") or not address.hostname:
                raise ValueError("url must be the address of a server, such as https://host/v1")
            if address.username is not None or address.password is not None or address.query or address.fragment:
                raise ValueError(
                    "url must not contain a key, a password, or anything after '?' or '#'. Set key_env to the name of "
                    "the environment variable with the key."
                )
        return self

    @property
    def address(self) -> str:
        """Return the address of the server."""
        return self.url or ""

    @property
    def host(self) -> str:
        """Return the host that receives the texts."""
        return urlsplit(self.address).netloc

    @property
    def recipient_notice(self) -> str:
        """Return the notice about the recipient of the texts."""
        return f"the texts are sent to {self.host}, and the operator of this server can read and keep the texts"


@dataclass(frozen=True)
class UserHostedWeights:
    """The back end of a model whose weights run on the user's machines: this one, or those of a cluster.

    :class:`Endpoint` has the same interface, so that callers need not distinguish the two.
    """

    is_here: ClassVar[bool] = True
    described: ClassVar[str] = "run here"
    server_adds_start_token: ClassVar[bool] = False

    def can_give(self, statistic: str) -> bool:
        """Return True: weights that run here give every statistic in CachedKind.statistics."""
        return True

    def describe_location(self, files: str) -> str:
        """Return the location of the model, given the description of its ``files``."""
        return files


class Endpoint(ServerSettings):
    """A server that returns log-probabilities of the tokens of a prompt, and the settings of requests to it."""

    is_here: ClassVar[bool] = False

    url: str = Field(description="base URL of the server, such as http://127.0.0.1:8000/v1")
    model: str = Field(description="name of the model on the server")
    dialect: DialectName = Field(description="format of requests and responses")
    top_logprobs: Annotated[int, Field(ge=0)] = Field(
        default=20,
        description="number of most likely tokens to request per position; servers have their own limits",
    )
    moments: bool = Field(
        default=False,
        description="True if the server runs the plugin corpus-audit-vllm, which adds mean and standard deviation to "
        "responses (dialect vllm only)",
    )
    price_per_million: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million sent tokens, in your currency; None: costs are not computed"
    )

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if self.moments and not self.traits.has_plugin:
            names = [repr(dialect) for dialect, traits in DIALECT_TRAITS.items() if traits.has_plugin]
            dialects = " or ".join(names)
            raise ValueError(f"'moments' requires dialect {dialects}. Remove 'moments' or change the dialect.")
        if self.moments and self.top_logprobs > 20:
            raise ValueError(
                f"'top_logprobs' is {self.top_logprobs}, but with 'moments' responses contain at most the 20 most "
                "likely tokens. Remove 'top_logprobs'."
            )
        if self.max_cost is not None and self.price_per_million is None:
            raise ValueError("'max_cost' requires 'price_per_million'. Add the price or remove 'max_cost'.")
        return self

    @property
    def described(self) -> str:
        """Return the server's name for the model, its revision and the address."""
        if self.revision is None:
            return f"{self.model} at {self.url}"
        return f"{self.model} at {self.revision} at {self.url}"

    @property
    def traits(self) -> DialectTraits:
        """Return the properties that all servers of this dialect share."""
        return DIALECT_TRAITS[self.dialect]

    @property
    def server_adds_start_token(self) -> bool:
        """Return True if the server adds the start token and never returns a prompt's first log-probability."""
        return self.traits.server_adds_start_token

    def cost_of(self, tokens: int) -> float:
        """Return the cost of ``tokens`` tokens, or 0 without a price."""
        return tokens * (self.price_per_million or 0.0) / 1e6

    def can_give(self, statistic: str) -> bool:
        """Return True if responses contain a statistic, by its name in CachedKind.statistics."""
        return statistic in self.available_statistics

    def describe_location(self, files: str) -> str:
        """Return the address of the model and the ``files`` of its tokenizer, as a phrase."""
        return f"{self.described}; tokenizer: {files}"

    @property
    def available_statistics(self) -> frozenset[str]:
        """Return the statistics that responses contain for every token, by their names in CachedKind.statistics."""
        statistics = {"logprob"}
        if self.top_logprobs:
            statistics.add("max_logprob")
        if self.traits.gives_rank:
            statistics.add("rank")
        if self.moments:
            statistics.update(("mean", "std"))
        if self.traits.names_ids:
            if self.top_logprobs:
                statistics.add("argmax_id")
            if self.top_logprobs >= 20:
                statistics.add("topk")
            if self.top_logprobs >= 40:
                statistics.add("log_mass_40")
        return frozenset(statistics)
