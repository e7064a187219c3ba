"""An endpoint as a back end: windows in, what the server's answers say of their tokens out.

What belongs here: the interface of token_statistics/backend.py for models behind an endpoint. What does not: requests
(client.py), answers (dialects/), whether the endpoint can be used (probe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from audit_pipeline.endpoints.asking import answers
from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.endpoints.client import Client
from audit_pipeline.endpoints.dialects.dialect import Wanted
from audit_pipeline.endpoints.probe import Probed, client_of
from audit_pipeline.endpoints.prompt import Prompt, prompt_of
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.backend import Done, WindowStatistics, Work
from audit_pipeline.token_statistics.windows import Window

_COLUMNS: Mapping[str, Sequence[str]] = {"topk": ("topk_id", "topk_logprob")}


def open_endpoint(
    model: TokenizedModel, budget: Budget, tell: Callable[[str], None], probed: Probed
) -> EndpointBackend:
    """The endpoint of ``model``, which has just been ``probed``, ready to be asked.

    Raises ModelError where the model's entry has none.
    """
    backend = EndpointBackend(model, client_of(model, budget, tell), probed)
    tell(f"{model.entry.name}: {backend.described}")
    return backend


@dataclass
class EndpointBackend:
    """A model behind an endpoint that has been probed."""

    model: TokenizedModel
    client: Client
    probed: Probed
    branch_tokens_run: int = 0

    @property
    def described(self) -> str:
        """Where and how the model is run, in words."""
        endpoint = self.client.endpoint
        return f"behind {endpoint.url} (dialect {endpoint.dialect}, {endpoint.concurrency} requests at a time)"

    def over(self, work: Work) -> Generator[Sequence[Done]]:
        """Ask for what ``work`` wants, and yield what windows left behind as answers come.

        Raises ModelError, TransientError or BudgetError after what had been answered by then. Closing it cancels what
        is under way.
        """
        wanted = Wanted.of(self.client.endpoint, work.wanted)
        with closing(answers(self.client, self._prompts(work), wanted)) as found:
            for some in found:
                yield [
                    Done(window, WindowStatistics(window, _wanted(answer.values, work)), None)
                    for window, answer in some
                ]

    def _prompts(self, work: Work) -> Iterator[tuple[Window, Prompt]]:
        for window in work.prepared.windows:
            if work.prepared.wants_pass(window.text):
                text = work.prepared.encoded[window.text]
                yield window, prompt_of(self.model, text, window, work.before, spelled=not self.probed.takes_ids)


def _wanted(values: Mapping[str, npt.NDArray[Any]], work: Work) -> dict[str, npt.NDArray[Any]]:
    columns = {column for name in work.wanted for column in _COLUMNS.get(name, (name,))}
    return {name: array for name, array in values.items() if name in columns}
