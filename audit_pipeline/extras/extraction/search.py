"""Extraction from whole documents: the windows that a stride asks for, run and read, coarse ones first."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.defaults import COARSE_TO_FINE
from audit_pipeline.extras.extraction.documents import Quotation, SearchedDocument, quote_window
from audit_pipeline.extras.extraction.memorisation import (
    THRESHOLDS,
    Mask,
    Memorisation,
    Windows,
    choose_fine_starts,
    conclude_memorisation,
    join_windows,
    tile_document,
    windows_from_rows,
)
from audit_pipeline.extras.extraction.priors import judge_by_priors
from audit_pipeline.extras.extraction.settings_grid import (
    Grid,
    GridFindings,
    GridWindow,
    build_grid,
    encode_grid_windows,
    read_grid,
)
from audit_pipeline.extras.extraction.window_exclusions import Exclusions, judge_windows
from audit_pipeline.extras.extraction.window_probabilities import (
    count_tokens_to_run,
    encode_windows_at,
    explain_window_too_long,
    read_windows,
    run_windows,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import KINDS, Kind
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass

OfDocument = TypeVar("OfDocument")

_WINDOWS_AT_A_TIME = 8192


@dataclass(frozen=True, eq=False)
class Extraction:
    """What was found of a document. ``is_coarse`` [n]: the windows that are run whatever others show."""

    document: SearchedDocument
    windows: Windows
    is_coarse: Mask
    judged: Exclusions

    @cached_property
    def memorisation(self) -> Memorisation:
        """The conclusions from its windows."""
        return conclude_memorisation(self.windows, self.judged.is_set_apart, self.document.text)

    @property
    def strongest_log_p(self) -> float | None:
        """The log-probability of its strongest passage; None without one."""
        return float(self.windows.log_p[self.memorisation.strongest[0]]) if self.memorisation.strongest else None

    @property
    def compared(self) -> Floats:
        """The log-probabilities that p-values rest on: of the coarse windows, minus infinity where set apart."""
        return np.where(self.judged.is_set_apart, -np.inf, self.windows.log_p)[self.is_coarse]


class Search:
    """The extraction of ``documents`` from a model: its cost, and its run.

    ``unreadable_parts`` are parts of the cache that a run found damaged and set aside; their windows were run again.
    """

    def __init__(
        self,
        model: TokenizedModel,
        documents: Sequence[SearchedDocument],
        options: ExtractionSettings,
        caches: Caches,
        reference: TokenizedModel | None = None,
    ) -> None:
        """``reference`` was not trained on the documents; what it reproduces, too, is set apart as predictable.

        Raises DataError where a window does not fit into the model's context.
        """
        if (problem := explain_window_too_long(model, options.lengths)) is not None:
            raise DataError(problem)
        self.model, self.options, self._caches = model, options, caches
        self._documents = [replace(document, text=document.text[: options.characters]) for document in documents]
        self._reference = reference
        # Models on servers do not give what a grid is made of.
        has_grid = options.grid and KINDS["grid"].is_available_from(model.has_statistic)
        self._room, _ = window_and_stride(model)
        self._grid: Grid | None = build_grid(options.lengths, self._room) if has_grid else None
        self.unreadable_parts: tuple[str, ...] = ()

    def count_work(self) -> tuple[int, int]:
        """Windows, and tokens that the model would be run on, before any fine window is known."""
        parts = [
            (len(windows), count_tokens_to_run(self.model, windows, self._caches))
            for windows in self._iterate_first_windows()
        ]
        return sum(windows for windows, _ in parts), sum(tokens for _, tokens in parts)

    def count_grid_tokens(self) -> int:
        """Tokens that the model would be run on for the grid."""
        windows = [] if self._grid is None else self._iterate_grid_windows(self._grid)
        return sum(
            count_tokens_to_run(self.model, [grid_window.window for grid_window in of_document], self._caches, "grid")
            for of_document in windows
        )

    def run(self, backend_of: BackendOf, on_progress: Callable[[Progress], None] | None = None) -> list[Extraction]:
        """Each document's findings, in their order; a model is loaded where a window of one is not in the cache."""
        backend = partial(backend_of, self.model)
        for windows in self._iterate_first_windows():
            self._run_windows(windows, backend, on_progress)
        coarse = list(self._read_windows(map(self._encode_first_windows, self._documents)))
        fine = [
            self._encode_fine_windows(document, windows) if self.options.stride == COARSE_TO_FINE else []
            for document, windows in zip(self._documents, coarse, strict=True)
        ]
        for windows in _batch_windows(fine):
            self._run_windows(windows, backend, on_progress)
        found = [
            join_windows(first, more) if len(more) else first
            for first, more in zip(coarse, self._read_windows(fine), strict=True)
        ]
        lengths = self.options.lengths
        judged = judge_windows(
            self.model, self._documents, found, lengths, self._caches, self._reference, backend_of, on_progress
        )
        if self.model.entry.host.is_here:
            judged = judge_by_priors(
                self.model, self._documents, found, judged, lengths, self._caches, backend, on_progress
            )
        return [
            Extraction(document, windows, np.isin(windows.start, first.start), judgement)
            for document, windows, first, judgement in zip(self._documents, found, coarse, judged, strict=True)
        ]

    def run_grid(
        self, backend_of: BackendOf, on_progress: Callable[[Progress], None] | None = None
    ) -> GridFindings | None:
        """What the grid shows of each document, in their order; None where it is not asked for, or the model's back end
        does not give what it is made of. The model is loaded where a window is not in the cache.
        """
        if self._grid is None:
            return None
        found = []
        for group in _group_documents(self._iterate_grid_windows(self._grid)):
            windows = [grid_window.window for of_document in group for grid_window in of_document]
            self._run_windows(windows, partial(backend_of, self.model), on_progress, "grid")
            found += [read_grid(self.model, of_document, self._grid, self._caches) for of_document in group]
        return GridFindings(self._grid, found)

    def quote_strongest(self, extractions: Sequence[Extraction]) -> Iterator[dict[int, Quotation]]:
        """The strongest passages of each document in words, by the number of their window."""
        chosen = (list(extraction.memorisation.strongest) for extraction in extractions)
        windows = (
            encode_windows_at(
                self.model,
                extraction.document.text,
                extraction.windows.start[numbers].tolist(),
                self.options.lengths,
            )
            for extraction, numbers in zip(extractions, chosen, strict=True)
        )
        for extraction, rows in zip(extractions, self._read_rows(windows), strict=True):
            by_start = {row["start"]: row for row in rows.to_pylist()}
            yield {
                number: quote_window(
                    extraction.document.text,
                    by_start[int(extraction.windows.start[number])],
                    self.model.tokenizer,
                )
                for number in extraction.memorisation.strongest
            }

    def is_as_long_as_a_window(self, document: SearchedDocument) -> bool:
        """Whether a document has at least one window."""
        return bool(encode_windows_at(self.model, document.text, [0], self.options.lengths))

    def bound_near_verbatim(
        self, extraction: Extraction, number: int, backend_of: BackendOf, differing: int, beams: int
    ) -> float:
        """The log of a lower bound of the probability of a continuation near the suffix of a document's window
        ``number``, never below that of the suffix itself.
        """
        # Generation is imported where it runs: what is cached needs no torch.
        from audit_pipeline.extras.extraction.continuations import bound_near_verbatim  # noqa: PLC0415

        window = self.encode_window(extraction, number)
        bound = bound_near_verbatim(self.load_local_pass(backend_of), window, differing, beams)
        # The two were summed over passes of their own, whose last digits differ.
        return max(bound, float(extraction.windows.log_p_top[number]))

    def load_local_pass(self, backend_of: BackendOf) -> ForwardPass:
        """Load the model to generate with; its weights have to be on this machine."""
        from audit_pipeline.token_statistics.loading import load_local_pass  # noqa: PLC0415

        return load_local_pass(self.model, backend_of)

    def encode_window(self, extraction: Extraction, number: int) -> EncodedText:
        """Return a document's window ``number`` as tokens."""
        start = int(extraction.windows.start[number])
        [window] = encode_windows_at(self.model, extraction.document.text, [start], self.options.lengths)
        return window

    def _iterate_grid_windows(self, grid: Grid) -> Iterator[list[GridWindow]]:
        return (encode_grid_windows(self.model, document.text, grid, self._room) for document in self._documents)

    def _iterate_first_windows(self) -> Iterator[list[EncodedText]]:
        return _batch_windows(map(self._encode_first_windows, self._documents))

    def _encode_first_windows(self, document: SearchedDocument) -> list[EncodedText]:
        """The windows that are run whatever they show."""
        if self.options.step is not None:
            starts: Iterable[int] = range(0, len(document.text), self.options.step)
        else:
            [tokens] = encode(self.model, [document.text])
            lengths = self.options.lengths
            starts = [
                int(tokens.char_start[token])
                for token in tile_document(tokens.char_start, lengths.prefix, lengths.suffix)
            ]
        return encode_windows_at(self.model, document.text, starts, self.options.lengths)

    def _encode_fine_windows(self, document: SearchedDocument, coarse: Windows) -> list[EncodedText]:
        """The fine windows that a document's coarse ones, which have been run, call for."""
        if not len(coarse):
            return []
        [tokens] = encode(self.model, [document.text])
        half = self.options.lengths.suffix // 2
        at = np.searchsorted(tokens.char_start, coarse.start) + half
        half_on = tokens.char_start[np.minimum(at, len(tokens.char_start) - 1)]
        starts = choose_fine_starts(coarse.start.tolist(), half_on.tolist(), coarse.half, math.log(THRESHOLDS[0]), half)
        return encode_windows_at(self.model, document.text, starts, self.options.lengths)

    def _run_windows(
        self,
        windows: Sequence[EncodedText],
        backend: Callable[[], Backend],
        on_progress: Callable[[Progress], None] | None,
        kind: Kind = "extraction",
    ) -> None:
        summary = run_windows(self.model, windows, self._caches, backend, on_progress, kind)
        self.unreadable_parts = tuple(dict.fromkeys([*self.unreadable_parts, *summary.unreadable_parts]))

    def _read_windows(self, of_documents: Iterable[list[EncodedText]]) -> Iterator[Windows]:
        return map(windows_from_rows, self._read_rows(of_documents))

    def _read_rows(self, of_documents: Iterable[list[EncodedText]]) -> Iterator[pa.Table]:
        """The cached rows of each document's windows, those of many documents looked up together."""
        for group in _group_documents(of_documents):
            rows = read_windows(self.model, [window for windows in group for window in windows], self._caches)
            texts = rows.column("text_sha256").to_pylist()
            for windows in group:
                sha256 = windows[0].text_sha256 if windows else ""
                begin, end = bisect_left(texts, sha256), bisect_right(texts, sha256)
                yield rows.slice(begin, end - begin)


def _group_documents(of_documents: Iterable[list[OfDocument]]) -> Iterator[list[list[OfDocument]]]:
    """The windows of some documents at a time."""
    group: list[list[OfDocument]] = []
    for windows in of_documents:
        group.append(windows)
        if sum(map(len, group)) >= _WINDOWS_AT_A_TIME:
            yield group
            group = []
    if group:
        yield group


def _batch_windows(of_documents: Iterable[list[EncodedText]]) -> Iterator[list[EncodedText]]:
    """The windows of all documents, so many at a time."""
    windows = chain.from_iterable(of_documents)
    return iter(lambda: list(islice(windows, _WINDOWS_AT_A_TIME)), [])
