"""An endpoint as a back end (token_statistics/backend.py): windows in, the statistics in the server's answers out."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.errors import AuditError, BudgetError, ModelError, TransientError
from audit_pipeline.extras.servers.dialect_interface import (
    AnswerDetail,
    NoStringError,
    Prompt,
    build_prompt,
    find_floor,
)
from audit_pipeline.extras.servers.probe import ModelCheck, ProbeResult
from audit_pipeline.extras.servers.prompt_client import EndpointClient
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.tokens import Window

# At least so many times a check's tokens are sent between two checks, so that checks are less than a twentieth of all,
# and at least so many seconds pass: a fast server would wait for checks most of the time. No more than that either: a
# killed run loses what is not checked yet.
_TIMES_CHECK = 20
_SECONDS = 10.0

_COLUMNS: Mapping[str, Sequence[str]] = {"topk": ("topk_id", "topk_logprob")}


@dataclass
class EndpointBackend:
    """A model at an endpoint that has been probed."""

    model: TokenizedModel
    client: EndpointClient
    probed: ProbeResult
    branch_tokens_run: int = 0

    @property
    def described(self) -> str:
        """Where and how the model is run, in words."""
        endpoint = self.client.endpoint
        return f"at {endpoint.url} (dialect {endpoint.dialect}, {endpoint.concurrency} requests at a time)"

    @property
    def local_backend(self) -> EndpointBackend:
        """See Backend."""
        return self

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Ask for what ``work`` wants, and yield the results of windows, part by part.

        A part is yielded once the endpoint's model was found to be the same after it as before it: rows of another
        model must not get this one's fingerprint. The tokens of that check are reserved in the budget while the part is
        requested. Raises ModelError, TransientError or BudgetError after yielding what was answered by then. Closing it
        cancels open requests, and what has not been checked is lost.

        A text that cannot be sent as a string to a server which takes strings is reported and left out: it has no row.
        """
        left_out: set[int] = set()
        try:
            yield from self._iterate_parts(work, left_out)
        finally:
            if left_out:
                self.client.notify(f"{self.client.who}: no row was made for the texts left out: {len(left_out)}")

    def _iterate_parts(self, work: Work, left_out: set[int]) -> Generator[Sequence[WindowResult]]:
        waiting = self._iterate_prompts(work, left_out)
        check = ModelCheck(self.model, self.client, self.probed)
        for first in waiting:
            with self.client.budget.reserve_for_later(check.token_count):
                part = _take_until_check(chain([first], waiting), check.token_count)
                done, fault = self._request_part(part, work, left_out)
            if done or fault is None:
                self._require_same(check, fault)
                yield done
            if fault is not None:
                raise fault

    def _request_part(
        self, part: Iterable[tuple[Window, Prompt]], work: Work, left_out: set[int]
    ) -> tuple[list[WindowResult], AuditError | None]:
        """Return the results of the windows, and the error that ended them, if one did."""
        done: list[WindowResult] = []
        detail = AnswerDetail.for_statistics(self.client.endpoint, work.wanted)
        columns = {column for name in work.wanted for column in _COLUMNS.get(name, (name,))}
        leave_out = partial(self._leave_out, work, left_out)
        try:
            with closing(self.client.request_answers(part, detail, leave_out=leave_out)) as found:
                for window, answer in chain.from_iterable(found):
                    self._mask_floor_values(work, window, answer.values["logprob"])
                    values = {name: array for name, array in answer.values.items() if name in columns}
                    done.append(WindowResult(window, values))
        except AuditError as fault:
            return done, fault
        return done, None

    def _mask_floor_values(self, work: Work, window: Window, logprobs: npt.NDArray[Any]) -> None:
        """Put NaN in the place of log-probabilities that the server ends at, and report those that are not known."""
        floor = find_floor(logprobs)
        if floor is not None:
            logprobs[logprobs == floor] = np.nan
        if unknown := int(np.isnan(logprobs).sum()):
            sha256 = work.prepared.encoded[window.text].text_sha256
            why = "it gives none" if floor is None else f"its log-probabilities end at {floor:.6g}"
            self.client.notify(
                f"{self.client.who}: the text with sha256 {sha256} is not scored: the log-probabilities of {unknown} "
                f"of {len(logprobs)} tokens are not known ({why})"
            )

    def _require_same(self, check: ModelCheck, fault: AuditError | None) -> None:
        try:
            # A server that has just timed out is not waited for again.
            check.require_same_model(with_retries=fault is None)
        except (TransientError, BudgetError) as error:
            raise (fault or error) from error

    def _iterate_prompts(self, work: Work, left_out: set[int]) -> Iterator[tuple[Window, Prompt]]:
        for window in work.prepared.windows:
            if work.prepared.wants_pass(window.text) and window.text not in left_out:
                text = work.prepared.encoded[window.text]
                try:
                    prompt = build_prompt(self.model, text, window, work.before, as_string=not self.probed.takes_ids)
                except NoStringError as error:
                    self._leave_out(work, left_out, window, error)
                else:
                    yield window, prompt

    def _leave_out(self, work: Work, left_out: set[int], window: Window, error: ModelError) -> None:
        if window.text not in left_out:
            left_out.add(window.text)
            sha256 = work.prepared.encoded[window.text].text_sha256
            self.client.notify(f"{self.client.who}: the text with sha256 {sha256} is left out: {error}")


def _take_until_check(prompts: Iterable[tuple[Window, Prompt]], cost: int) -> Iterator[tuple[Window, Prompt]]:
    """Yield as many of ``prompts`` as are asked for between two checks that take ``cost`` tokens each."""
    tokens, started = 0, time.monotonic()
    for window, prompt in prompts:
        yield window, prompt
        tokens += prompt.token_count
        if tokens >= _TIMES_CHECK * cost and time.monotonic() - started >= _SECONDS:
            return
