"""Settings that all servers of models share: address, key, concurrency and limits."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from audit_pipeline.config.validation import StrictSettings


class ServerSettings(StrictSettings):
    """A server of a model: its address, its key, and the limits of one run."""

    url: str | None = Field(
        default=None, description="address of the server, as http://127.0.0.1:8000/v1; None: the provider's address"
    )
    key_env: str | None = Field(default=None, description="environment variable that holds the key")
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
                raise ValueError("url is the address of a server: https://host/v1")
            if address.username is not None or address.password is not None or address.query or address.fragment:
                raise ValueError(
                    "url holds no key and no password, and nothing after '?' or '#': name the variable that holds the "
                    "key as key_env"
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
        return f"the texts are sent to {self.host}: the operator of that server can read and keep them"
