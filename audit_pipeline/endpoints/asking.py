"""Prompts to an endpoint, answers back in its dialect.

What belongs here: putting client and dialect together, for the probe and for runs. What does not: either of them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

from audit_pipeline.endpoints.client import Asked, Client
from audit_pipeline.endpoints.dialects import DIALECTS
from audit_pipeline.endpoints.dialects.dialect import Answer, BadAnswerError, Wanted
from audit_pipeline.endpoints.prompt import Prompt
from audit_pipeline.fetch.retry import RetryPolicy

K = TypeVar("K")


def answers(
    client: Client, prompts: Iterable[tuple[K, Prompt]], wanted: Wanted, *, patience: RetryPolicy | None = None
) -> Generator[list[tuple[K, Answer]]]:
    """The answers to ``prompts`` as they come, each with the key that its prompt has.

    Raises BadAnswerError, which names the text, for an answer that cannot be one; else as :meth:`Client.each`.
    """
    dialect = DIALECTS[client.endpoint.dialect]

    def ask(one: tuple[K, Prompt]) -> Asked:
        return dialect.ask(client.endpoint, one[1], wanted)

    def read(one: tuple[K, Prompt], body: bytes) -> tuple[K, Answer]:
        key, prompt = one
        try:
            return key, dialect.read(prompt, wanted, body)
        except BadAnswerError as error:
            raise BadAnswerError(f"{client.who}: {error} (text with sha256 {prompt.sha256})") from error

    return client.each(prompts, ask, read, patience=patience)
