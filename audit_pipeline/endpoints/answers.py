"""Prompts to an endpoint, answers back in its dialect.

What belongs here: putting client and dialect together, for the probe and for runs. What does not: either of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import chain
from typing import TypeVar

from audit_pipeline.endpoints.client import Client, ServerRequest
from audit_pipeline.endpoints.dialects import DIALECTS
from audit_pipeline.endpoints.exchange import Answer, AnswerDetail, BadAnswerError, OtherTokensError, Prompt
from audit_pipeline.fetch.retry import RetryPolicy

K = TypeVar("K")


def request_answers(
    client: Client,
    prompts: Iterable[tuple[K, Prompt]],
    detail: AnswerDetail,
    *,
    patience: RetryPolicy | None = None,
    leave_out: Callable[[K, OtherTokensError], None] | None = None,
) -> Generator[list[tuple[K, Answer]]]:
    """The answers to ``prompts`` as they come, each with the key that its prompt has.

    Where strings are sent, ``leave_out`` is called for each that the server cuts into other tokens; None: that is an
    error. Raises BadAnswerError, which names the text, for an unusable answer; else as :meth:`Client.iterate_answers`.
    """
    dialect = DIALECTS[client.endpoint.dialect]

    def ask(numbered: tuple[K, Prompt]) -> ServerRequest:
        return dialect.ask(client.endpoint, numbered[1], detail)

    def read(numbered: tuple[K, Prompt], body: bytes) -> list[tuple[K, Answer]]:
        key, prompt = numbered
        try:
            return [(key, dialect.read(prompt, detail, body))]
        except BadAnswerError as error:
            if leave_out is not None and prompt.spelled is not None and isinstance(error, OtherTokensError):
                leave_out(key, error)
                return []
            raise BadAnswerError(f"{client.who}: {error} (text with sha256 {prompt.sha256})") from error

    with closing(client.iterate_answers(prompts, ask, read, patience=patience)) as found:
        for answered in found:
            yield list(chain.from_iterable(answered))
