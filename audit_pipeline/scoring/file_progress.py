"""How far scoring a file is, and how long the rest will take.

What belongs here: from the progress of single passes to that of the whole file. What does not: showing it
(operate/progress.py), measuring a pass (token_statistics/run.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from audit_pipeline.fetch.stream import Expected
from audit_pipeline.token_statistics.run import Progress


@dataclass(frozen=True)
class FileProgress:
    """How far a file is: ``texts_done`` counts those from the cache too, and parts of what a text needs.

    ``texts_total`` and ``tokens_total`` are reckoned from what has been read where ``estimated``; ``tokens_done`` are
    those that went through a model now. ``seconds_left`` is None until there is something to estimate it from.
    """

    texts_done: int
    texts_total: int
    estimated: bool
    tokens_done: int
    tokens_total: int
    tokens_per_second: float
    seconds_left: float | None


@dataclass(frozen=True)
class PassWeight:
    """What a pass over the texts takes beside a plain one: so many times the tokens, and the time."""

    tokens: float = 1.0
    time: float = 1.0


OnFileProgress = Callable[[FileProgress], None]


class Pace:
    """Gets each chunk's beginning, the passes over it and its end; reports how far the file is.

    ``passes`` are those that a chunk may take, in order. A file that is one chunk and comes from the cache is not
    reported: it is done at once.
    """

    def __init__(
        self, passes: Sequence[PassWeight], on_progress: OnFileProgress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._passes, self._tell, self._clock = passes, on_progress, clock
        self._expected = Expected(0, estimated=True)
        self._texts_before = self._chunk = self._chunks = 0
        self._tokens_before = 0
        self._begun = self._tokens_of_chunk = 0
        self._inner: Progress | None = None
        self._rate, self._has_told = 0.0, False
        # What the time left is told by: since when, from which text on, and whether anything was computed since.
        self._since, self._since_texts, self._computes = clock(), 0.0, False

    def begin(self, texts: int, expected: Expected) -> None:
        """A chunk of so many texts is next; ``expected`` is how many the file has."""
        self._chunk, self._expected = texts, expected
        self._chunks += 1
        self._begun, self._inner = 0, None
        self._tokens_of_chunk = 0

    def __call__(self, inner: Progress) -> None:
        """How far a pass over the chunk is."""
        if self._inner is None or inner.seconds < self._inner.seconds:
            self._end_pass()
            self._begun += 1
        self._inner, self._rate = inner, inner.tokens_per_second
        if not self._computes:
            # What came from the cache before says nothing of the pace.
            self._computes = True
            self._since, self._since_texts = self._clock() - inner.seconds, self._texts_before
        share = inner.tokens_done / inner.tokens_total if inner.tokens_total else 1.0
        self._report_progress(
            self._texts_before + self._chunk * self._share_of_chunk(share),
            self._tokens_before + self._tokens_of_chunk + inner.tokens_done,
            self._tokens_before + self._tokens_of_chunk + round(inner.tokens_total * self._compute_remaining_ratio()),
        )

    def end(self) -> None:
        """The chunk is run and scored."""
        self._end_pass()
        self._tokens_before += self._tokens_of_chunk
        self._texts_before += self._chunk
        if self._has_told or self._chunks > 1 or self._texts_before < self._expected.rows:
            self._report_progress(self._texts_before, self._tokens_before, self._tokens_before)

    def _end_pass(self) -> None:
        if self._inner is not None:
            self._tokens_of_chunk += self._inner.tokens_total
            self._inner = None

    def _share_of_chunk(self, pass_share: float) -> float:
        """How much of the chunk's time is over, with ``pass_share`` of the pass that has begun."""
        times = [weight.time for weight in self._passes]
        before, now = sum(times[: self._begun - 1]), sum(times[self._begun - 1 : self._begun])
        return min(1.0, (before + now * pass_share) / sum(times))

    def _compute_remaining_ratio(self) -> float:
        """Tokens of the pass that has begun and of those behind it, as multiples of the former."""
        tokens = [weight.tokens for weight in self._passes[self._begun - 1 :]]
        return sum(tokens) / tokens[0] if tokens else 1.0

    def _report_progress(self, done: float, tokens: int, tokens_of_texts_begun: int) -> None:
        begun = self._texts_before + (self._chunk if self._inner else 0)
        total = max(self._expected.rows, begun)
        elapsed, texts = self._clock() - self._since, done - self._since_texts
        self._has_told = True
        self._tell(
            FileProgress(
                texts_done=round(done),
                texts_total=total,
                estimated=self._expected.estimated,
                tokens_done=tokens,
                tokens_total=round(tokens_of_texts_begun * total / begun) if begun else 0,
                tokens_per_second=self._rate,
                seconds_left=elapsed / texts * (total - done) if texts > 0 else None,
            )
        )
