"""Prompts to an endpoint, answers back in its dialect."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from itertools import chain
from typing import TypeVar

from audit_pipeline.extras.servers.client import PATIENCE, Client, ServerAnswer
from audit_pipeline.extras.servers.dialect_interface import (
    Answer,
    AnswerDetail,
    BadAnswerError,
    OtherTokensError,
    Prompt,
)
from audit_pipeline.extras.servers.dialects import DIALECTS
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.usage_budget import Budget
from audit_pipeline.readers.retry import RetryPolicy

K = TypeVar("K")


class EndpointClient(Client):
    """Asks the endpoint of the model called ``name``."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        budget: Budget,
        *,
        notify: Callable[[str], None] = lambda words: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        place = "the endpoint of config/models.yaml"
        super().__init__(f"{name} at {endpoint.url}", endpoint, budget, place=place, notify=notify, patience=patience)
        self.endpoint = endpoint

    def request_answers(
        self,
        prompts: Iterable[tuple[K, Prompt]],
        detail: AnswerDetail,
        *,
        patience: RetryPolicy | None = None,
        leave_out: Callable[[K, OtherTokensError], None] | None = None,
    ) -> Generator[list[tuple[K, Answer]]]:
        """Yield the answers to ``prompts`` as they come, each with the key that its prompt has.

        Where strings are sent, ``leave_out`` is called for each that the server cuts into other tokens; None: that is
        an error. Raises BadAnswerError, which names the text, for an unusable answer; else as :meth:`iterate_answers`.
        """
        dialect = DIALECTS[self.endpoint.dialect]

        def read(keyed: tuple[K, Prompt], answer: ServerAnswer) -> list[tuple[K, Answer]]:
            key, prompt = keyed
            try:
                return [(key, dialect.read(prompt, detail, answer.body))]
            except BadAnswerError as error:
                if leave_out is not None and prompt.spelled is not None and isinstance(error, OtherTokensError):
                    leave_out(key, error)
                    return []
                raise BadAnswerError(f"{self.who}: {error} (text with sha256 {prompt.sha256})") from error

        requests = ((keyed, dialect.ask(self.endpoint, keyed[1], detail)) for keyed in prompts)
        with closing(self.iterate_answers(requests, read, patience=patience)) as found:
            for answered in found:
                yield list(chain.from_iterable(answered))
