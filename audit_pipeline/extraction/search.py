"""Extraction from whole documents: the windows that a stride asks for, run and read, coarse ones first.

What belongs here: the order of places, passes and conclusions. What does not: each of them (places.py, windows.py,
conclude.py), files and what is printed (cli/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit_pipeline.errors import DataError
from audit_pipeline.extraction.conclude import (
    THRESHOLDS,
    Memorisation,
    Windows,
    coarse_of,
    memorisation,
    together,
    windows_from,
)
from audit_pipeline.extraction.generate import Generated, generate
from audit_pipeline.extraction.long_runs import LongRun, long_run
from audit_pipeline.extraction.near_verbatim import Nearness, near_verbatim
from audit_pipeline.extraction.places import grid, tiled, worth_a_look
from audit_pipeline.extraction.windows import (
    Lengths,
    read_windows,
    require_room,
    run_windows,
    tokens_to_run,
    windows_at,
)
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.token_statistics.encode import EncodedText, encode
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.kept import Caches
from audit_pipeline.token_statistics.run import Progress

COARSE_TO_FINE, TILED = "coarse-to-fine", "tiled"
_CHARS = "chars:"
_WINDOWS_AT_A_TIME = 8192


@dataclass(frozen=True)
class Document:
    """A text by the name that a finding calls it."""

    name: str
    text: str


@dataclass(frozen=True)
class Extracted:
    """What was found of a document; ``first`` are those of its windows that are run whatever they show."""

    document: Document
    windows: Windows
    first: Windows
    found: Memorisation


@dataclass(frozen=True)
class Asked:
    """How a document is searched: the lengths of windows, and where they begin.

    ``step`` is the number of characters between windows of a grid; None: coarse windows, and where ``fine`` the fine
    ones that they call for.
    """

    lengths: Lengths
    step: int | None
    fine: bool


def asked_for(prefix: int, suffix: int, stride: str) -> Asked:
    """From ``stride`` as users write it: coarse-to-fine, tiled or chars:N; raises DataError for anything else."""
    if stride in (COARSE_TO_FINE, TILED):
        return Asked(Lengths(prefix, suffix), None, stride == COARSE_TO_FINE)
    step = stride.removeprefix(_CHARS)
    if step == stride or not step.isdecimal() or not int(step):
        raise DataError(f"the stride is {COARSE_TO_FINE}, {TILED} or {_CHARS}N with N of at least 1, not {stride!r}")
    return Asked(Lengths(prefix, suffix), int(step), fine=False)


class Search:
    """The extraction of ``documents`` from a model: what it would take, and doing it.

    ``unreadable_parts`` are parts of the cache that a run found damaged and set aside; their windows were run again.
    """

    def __init__(self, model: TokenizedModel, documents: Sequence[Document], asked: Asked, caches: Caches) -> None:
        """Raises DataError where a window does not fit into the model's context."""
        require_room(model, asked.lengths)
        self._model, self._documents, self._asked, self._caches = model, documents, asked, caches
        self.unreadable_parts: tuple[str, ...] = ()

    def tokens(self) -> tuple[int, int]:
        """Windows, and tokens that the model would be run on, before any fine window is known."""
        parts = [(len(windows), tokens_to_run(self._model, windows, self._caches)) for windows in self._first_windows()]
        return sum(windows for windows, _ in parts), sum(tokens for _, tokens in parts)

    def run(
        self, forward: Callable[[], ForwardPass], on_progress: Callable[[Progress], None] | None = None
    ) -> Iterator[Extracted]:
        """Each document's findings, in their order; the model is loaded where a window of one is not in the cache."""
        for windows in self._first_windows():
            self._run(windows, forward, on_progress)
        coarse = [self._read(self._first(document)) for document in self._documents]
        fine = [
            self._fine(document, windows) if self._asked.fine else []
            for document, windows in zip(self._documents, coarse, strict=True)
        ]
        for windows in _pieces(fine):
            self._run(windows, forward, on_progress)
        self._caches.compact()
        for document, first, more in zip(self._documents, coarse, fine, strict=True):
            found = together(first, self._read(more)) if more else first
            yield Extracted(document, found, first, memorisation(found, len(document.text)))

    def is_as_long_as_a_window(self, document: Document) -> bool:
        """Whether anything can be said of a document."""
        return bool(windows_at(self._model, document.text, [0], self._asked.lengths))

    def generated(
        self, one: Extracted, number: int, forward: Callable[[], ForwardPass], draws: int, seed: int
    ) -> Generated:
        """What the model gives behind the prefix of a document's window ``number``."""
        return generate(self._model, forward(), self._window(one, number), draws, seed)

    def near_verbatim(self, one: Extracted, number: int, forward: Callable[[], ForwardPass], near: Nearness) -> float:
        """The log of a lower bound of the probability of a continuation near the suffix of a document's window
        ``number``, never below that of the suffix itself."""
        bound = near_verbatim(forward(), self._window(one, number), near)
        # The two were summed over passes of their own, whose last digits differ.
        return max(bound, float(one.windows.log_p_top[number]))

    def long_run(self, document: Document, forward: Callable[[], ForwardPass], tokens: int) -> LongRun:
        """How much the model gives of the ``tokens`` behind the first prefix of a document."""
        return long_run(self._model, forward(), document.text, self._asked.lengths.prefix, tokens)

    def _window(self, one: Extracted, number: int) -> EncodedText:
        start = int(one.windows.start[number])
        [window] = windows_at(self._model, one.document.text, [start], self._asked.lengths)
        return window

    def _first_windows(self) -> Iterator[list[EncodedText]]:
        return _pieces(map(self._first, self._documents))

    def _first(self, document: Document) -> list[EncodedText]:
        """The windows that are run whatever they show."""
        if self._asked.step is not None:
            starts: Iterable[int] = grid(len(document.text), self._asked.step)
        else:
            [tokens] = encode(self._model, [document.text])
            lengths = self._asked.lengths
            starts = [int(tokens.char_start[one]) for one in tiled(tokens.char_start, lengths.prefix, lengths.suffix)]
        return windows_at(self._model, document.text, starts, self._asked.lengths)

    def _fine(self, document: Document, coarse: Windows) -> list[EncodedText]:
        """The fine windows that a document's coarse ones, which have been run, call for."""
        if not len(coarse):
            return []
        [tokens] = encode(self._model, [document.text])
        half = self._asked.lengths.suffix // 2
        at = np.searchsorted(tokens.char_start, coarse.start) + half
        half_on = tokens.char_start[np.minimum(at, len(tokens.char_start) - 1)]
        starts = worth_a_look(coarse_of(coarse, half_on.tolist()), math.log(THRESHOLDS[0]), half)
        return windows_at(self._model, document.text, starts, self._asked.lengths)

    def _run(
        self,
        windows: Sequence[EncodedText],
        forward: Callable[[], ForwardPass],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        summary = run_windows(self._model, windows, self._caches, forward, on_progress)
        self.unreadable_parts = tuple(dict.fromkeys([*self.unreadable_parts, *summary.unreadable_parts]))

    def _read(self, windows: Sequence[EncodedText]) -> Windows:
        return windows_from(read_windows(self._model, windows, self._caches))


def _pieces(found: Iterable[list[EncodedText]]) -> Iterator[list[EncodedText]]:
    """The windows of all documents, so many at a time."""
    piece: list[EncodedText] = []
    for windows in found:
        for window in windows:
            piece.append(window)
            if len(piece) == _WINDOWS_AT_A_TIME:
                yield piece
                piece = []
    if piece:
        yield piece
