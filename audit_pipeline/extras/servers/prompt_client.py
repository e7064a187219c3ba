"""The client of an endpoint: it sends prompts and reads the answers in the dialect of the endpoint."""

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
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.usage_budget import Budget

K = TypeVar("K")


class EndpointClient(Client):
    """A client of the endpoint of a model."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        budget: Budget,
        *,
        notify: Callable[[str], None] = lambda message: None,
        patience: RetryPolicy = PATIENCE,
    ) -> None:
        entry_name = "the endpoint of config/models.yaml"
        super().__init__(
            f"{name} at {endpoint.url}", endpoint, budget, entry_name=entry_name, notify=notify, patience=patience
        )
        self.endpoint = endpoint

    def request_answers(
        self,
        prompts: Iterable[tuple[K, Prompt]],
        detail: AnswerDetail,
        *,
        patience: RetryPolicy | None = None,
        leave_out: Callable[[K, OtherTokensError], None] | None = None,
    ) -> Generator[list[tuple[K, Answer]]]:
        """Yield the answers to prompts in the order in which they arrive, each with the key of its prompt.

        Args:
            prompts: Pairs of a key and a prompt.
            detail: Detail of the answers.
            patience: Policy of retries. None: that of the client.
            leave_out: Function that is called for a string that the server splits into other tokens. None: such a
                string raises BadAnswerError.

        Raises:
            BadAnswerError: If an answer is unusable. The message names the text.
            AuditError: If :meth:`iterate_answers` raises it.
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
        with closing(self.iterate_answers(requests, read, patience=patience)) as batches:
            for batch in batches:
                yield list(chain.from_iterable(batch))
