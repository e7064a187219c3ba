"""A back end (token_statistics/backend.py) that requests the statistics of windows from an endpoint."""

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
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.extras.servers.probe import ModelCheck, ProbeResult
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.token_statistics.backend import WindowResult, Work
from audit_pipeline.token_statistics.tokens import Window

# Windows are requested in parts, with a check of the model after each. A part has at least this many times the tokens
# of a check, so that checks are less than a twentieth of all tokens.
_TIMES_CHECK = 20
# Minimum duration of a part. With shorter parts, a fast server would spend most of its time on checks. Parts are no
# longer than both limits require, because a killed run loses its unchecked part.
_SECONDS = 10.0

_COLUMNS: Mapping[str, Sequence[str]] = {"topk": ("topk_id", "topk_logprob")}


@dataclass
class EndpointBackend:
    """The back end of a model at an endpoint that has passed the probe.

    Attributes:
        model: Model with its tokenizer.
        client: Client of the endpoint.
        probed: Result of the probe.
        branch_tokens_run: Number of tokens of branches, which an endpoint never runs.
    """

    model: TokenizedModel
    client: EndpointClient
    probed: ProbeResult
    branch_tokens_run: int = 0

    @property
    def described(self) -> str:
        """Return a description of the endpoint and its settings."""
        endpoint = self.client.endpoint
        return f"at {endpoint.url} (dialect {endpoint.dialect}, {endpoint.concurrency} requests at a time)"

    @property
    def local_backend(self) -> EndpointBackend:
        """Return this back end, because it always sends its requests from this process."""
        return self

    def run_work(self, work: Work) -> Generator[Sequence[WindowResult]]:
        """Request the statistics of windows, and yield the results part by part.

        A part is yielded after a check that the endpoint still has the same model. Otherwise rows of another model
        would get this model's fingerprint. The tokens of the check are reserved in the budget while the part is
        requested. Closing the generator cancels open requests and loses unchecked results.

        If a server accepts strings only, texts without a matching string are reported and skipped. They get no row in
        the results.

        Args:
            work: Windows and the names of the statistics.

        Raises:
            ModelError: If the model changed, or answers are unusable.
            TransientError: If the server does not answer.
            BudgetError: If the budget is used up. Finished results are yielded before each of these errors.
        """
        skipped: set[int] = set()
        try:
            yield from self._iterate_parts(work, skipped)
        finally:
            if skipped:
                self.client.notify(
                    f"{self.client.server_label}: {len(skipped)} text(s) were skipped and have no row in the results."
                )

    def _iterate_parts(self, work: Work, skipped: set[int]) -> Generator[Sequence[WindowResult]]:
        waiting = self._iterate_prompts(work, skipped)
        check = ModelCheck(self.model, self.client, self.probed)
        for first in waiting:
            with self.client.budget.reserve_for_later(check.token_count):
                part = _take_until_check(chain([first], waiting), check.token_count)
                done, fault = self._request_part(part, work, skipped)
            if done or fault is None:
                self._require_same(check, fault)
                yield done
            if fault is not None:
                raise fault

    def _request_part(
        self, part: Iterable[tuple[Window, Prompt]], work: Work, skipped: set[int]
    ) -> tuple[list[WindowResult], AuditError | None]:
        """Return the results of the windows, and the error that ended the requests, or None."""
        done: list[WindowResult] = []
        detail = AnswerDetail.for_statistics(self.client.endpoint, work.wanted)
        columns = set(chain.from_iterable(_COLUMNS.get(name, (name,)) for name in work.wanted))
        on_other_tokens = partial(self._skip_text, work, skipped)
        try:
            with closing(self.client.request_answers(part, detail, on_other_tokens=on_other_tokens)) as batches:
                for window, answer in chain.from_iterable(batches):
                    self._mask_floor_values(work, window, answer.values["logprob"])
                    values = {name: array for name, array in answer.values.items() if name in columns}
                    done.append(WindowResult(window, values))
        except AuditError as fault:
            return done, fault
        return done, None

    def _mask_floor_values(self, work: Work, window: Window, logprobs: npt.NDArray[Any]) -> None:
        """Replace log-probabilities at the server's floor (:func:`find_floor`) by NaN. Report how many are unknown."""
        floor = find_floor(logprobs)
        if floor is not None:
            logprobs[logprobs == floor] = np.nan
        n_unknown = int(np.isnan(logprobs).sum())
        if not n_unknown:
            return
        sha256 = work.prepared.encoded[window.text].text_sha256
        reason = "the server does not return them"
        if floor is not None:
            reason = f"the server replaces log-probabilities below {floor:.6g} by this value"
        self.client.notify(
            f"{self.client.server_label}: The text with sha256 {sha256} is not scored. The log-probabilities of "
            f"{n_unknown} of {len(logprobs)} tokens are unknown, because {reason}."
        )

    def _require_same(self, check: ModelCheck, fault: AuditError | None) -> None:
        try:
            # A server that has just timed out would time out again.
            check.require_same_model(with_retries=fault is None)
        except (TransientError, BudgetError) as error:
            raise (fault or error) from error

    def _iterate_prompts(self, work: Work, skipped: set[int]) -> Iterator[tuple[Window, Prompt]]:
        for window in work.prepared.windows:
            if not work.prepared.wants_pass(window.text) or window.text in skipped:
                continue
            text = work.prepared.encoded[window.text]
            try:
                prompt = build_prompt(self.model, text, window, work.before, as_string=not self.probed.takes_ids)
            except NoStringError as error:
                self._skip_text(work, skipped, window, error)
            else:
                yield window, prompt

    def _skip_text(self, work: Work, skipped: set[int], window: Window, error: ModelError) -> None:
        if window.text not in skipped:
            skipped.add(window.text)
            sha256 = work.prepared.encoded[window.text].text_sha256
            self.client.notify(f"{self.client.server_label}: The text with sha256 {sha256} is skipped. {error}")


def _take_until_check(prompts: Iterable[tuple[Window, Prompt]], cost: int) -> Iterator[tuple[Window, Prompt]]:
    """Yield the prompts of one part. The check of the model after the part costs ``cost`` tokens."""
    tokens = 0
    started = time.monotonic()
    for window, prompt in prompts:
        yield window, prompt
        tokens += prompt.token_count
        if tokens >= _TIMES_CHECK * cost and time.monotonic() - started >= _SECONDS:
            return
