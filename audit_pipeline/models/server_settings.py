"""What a user says of any server of a model: its address and key, how it is asked, and the most that a run may send."""

from __future__ import annotations

from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from audit_pipeline.config.validation import StrictSettings


class ServerSettings(StrictSettings):
    """A server of a model: where it is, how it is asked, and the limits that one run keeps to."""

    url: str | None = Field(
        default=None, description="the server's address, as http://127.0.0.1:8000/v1; None: the provider's own"
    )
    key_env: str | None = Field(default=None, description="the environment variable that holds the key")
    revision: str | None = Field(
        default=None, description="what you know of the weights; with another it is another model"
    )
    concurrency: Annotated[int, Field(ge=1, le=256)] = Field(default=8, description="requests at a time")
    timeout_seconds: Annotated[float, Field(gt=0)] = Field(
        default=120.0, description="how long an answer is waited for"
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="the most tokens of one run, prompts and answers; None: no limit"
    )
    max_cost: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="the most that one run may cost, by the prices; None: no limit"
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
        """Where the server is asked."""
        return self.url or ""

    @property
    def host(self) -> str:
        """Who gets the texts: the host of the address."""
        return urlsplit(self.address).netloc

    @property
    def recipient_notice(self) -> str:
        """Who gets to see the texts, in words."""
        return f"the texts are sent to {self.host}: the operator of that server can read and keep them"
