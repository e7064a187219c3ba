"""The search of whole documents for passages that a model reproduces: running windows, and reading their results."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction import COARSE_TO_FINE, settings_grid, window_probabilities
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
from audit_pipeline.extras.extraction.window_exclusions import Exclusions, exclude_by_priors, find_exclusions
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.claims import ANSWER_NOT_MEASURED
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import KINDS, Kind
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.run import Progress
from audit_pipeline.token_statistics.tokens import EncodedText, encode, window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.token_statistics.forward import ForwardPass

PerDocument = TypeVar("PerDocument")

OnProgress = Callable[[Progress], None] | None

_WINDOWS_PER_BATCH = 8192


@dataclass(frozen=True, eq=False)
class Extraction:
    """The results of a search for one document with n windows.

    Attributes:
        document: The document.
        windows: Its windows.
        is_coarse: A mask of shape (n,) of the coarse windows. They are run in any case, fine windows only if needed.
        exclusions: The windows that are set apart, with the reasons.
        problem: The reason why an answer has no window. None for other documents.
    """

    document: SearchedDocument
    windows: Windows
    is_coarse: Mask
    exclusions: Exclusions
    problem: str | None = None

    @cached_property
    def memorisation(self) -> Memorisation:
        """Return the conclusions from the windows."""
        return conclude_memorisation(self.windows, self.exclusions.is_set_apart, self.document.text)

    @property
    def strongest_log_p(self) -> float | None:
        """Return the log-probability of the strongest passage, or None if there is no passage."""
        if not self.memorisation.strongest:
            return None
        return float(self.windows.log_p[self.memorisation.strongest[0]])

    @property
    def compared_log_p(self) -> Floats:
        """Return the log-probabilities of the coarse windows, from which p-values are computed.

        The value of a window that is set apart is minus infinity.
        """
        return np.where(self.exclusions.is_set_apart, -np.inf, self.windows.log_p)[self.is_coarse]


class Search:
    """The search of documents for passages that a model reproduces.

    Attributes:
        model: The model that is searched.
        options: The settings of the search.
        unreadable_parts: Damaged files of the cache, which were renamed. Their windows were run again.
    """

    def __init__(
        self,
        model: TokenizedModel,
        documents: Sequence[SearchedDocument],
        options: ExtractionSettings,
        caches: Caches,
        reference: TokenizedModel | None = None,
    ) -> None:
        """Prepare the search.

        Args:
            model: The model to search.
            documents: The documents, which are cut to ``options.characters``. Answers are not cut.
            options: The settings of the search.
            caches: The caches of statistics.
            reference: A model that was not trained on the documents. Windows that it also reproduces are set apart as
                predictable.

        Raises:
            DataError: If a window does not fit into the model's context.
        """
        problem = window_probabilities.explain_too_long_windows(model, documents, options.lengths)
        if problem is not None:
            raise DataError(problem)
        self.model = model
        self.options = options
        self.unreadable_parts: tuple[str, ...] = ()
        self._caches = caches
        self._documents = [document.limit_characters(options.characters) for document in documents]
        self._reference = reference
        self._context_length, _ = window_and_stride(model)
        self._grid: settings_grid.Grid | None = None
        # Servers do not return the statistics of a grid. The suffixes of a grid begin at fixed tokens of a document, so
        # they would be other parts of conversations than the answers.
        if options.grid and not self.has_answers and KINDS["grid"].is_available_from(model.has_statistic):
            self._grid = settings_grid.build_grid(options.lengths, self._context_length)

    @property
    def has_answers(self) -> bool:
        """Return True if answers of conversations are searched."""
        return any(document.answer is not None for document in self._documents)

    def count_windows_and_tokens(self) -> tuple[int, int]:
        """Count the coarse windows, and the tokens that the model would be run on for them."""
        n_windows = 0
        n_tokens = 0
        for windows in self._iterate_first_windows():
            n_windows += len(windows)
            n_tokens += window_probabilities.count_tokens_to_run(self.model, windows, self._caches)
        return n_windows, n_tokens

    def count_grid_tokens(self) -> int:
        """Count the tokens that the model would be run on for the grid."""
        if self._grid is None:
            return 0
        n_tokens = 0
        for grid_windows in self._iterate_grid_windows_by_document(self._grid):
            windows = [grid_window.window for grid_window in grid_windows]
            n_tokens += window_probabilities.count_tokens_to_run(self.model, windows, self._caches, "grid")
        return n_tokens

    def run(self, backend_of: BackendOf, on_progress: OnProgress = None) -> list[Extraction]:
        """Run the search and return the results of each document in order.

        The model is loaded only if a window is not in the cache.
        """
        backend = partial(backend_of, self.model)
        for batch in self._iterate_first_windows():
            self._run_windows(batch, backend, on_progress)
        coarse = list(self._read_windows(map(self._encode_first_windows, self._documents)))
        windows = self._add_fine_windows(coarse, backend, on_progress)
        lengths = self.options.lengths
        exclusions = find_exclusions(
            self.model, self._documents, windows, lengths, self._caches, self._reference, backend_of, on_progress
        )
        if self.model.entry.host.is_here:
            exclusions = exclude_by_priors(
                self.model, self._documents, windows, exclusions, lengths, self._caches, backend, on_progress
            )
        extractions = []
        for document, all_windows, coarse_windows, document_exclusions in zip(
            self._documents, windows, coarse, exclusions, strict=True
        ):
            is_coarse = np.isin(all_windows.start, coarse_windows.start)
            problem = None
            if not len(all_windows):
                problem = self._explain_no_window(document)
            extractions.append(Extraction(document, all_windows, is_coarse, document_exclusions, problem))
        return extractions

    def _explain_no_window(self, document: SearchedDocument) -> str | None:
        if document.answer is None:
            return None
        answer = window_probabilities.encode_answer_window(self.model, document, self.options.suffix)
        return answer.problem or ANSWER_NOT_MEASURED

    def _add_fine_windows(
        self, coarse: Sequence[Windows], backend: Callable[[], Backend], on_progress: OnProgress
    ) -> list[Windows]:
        """Run the fine windows of each document and join them with the coarse windows."""
        if self.options.stride != COARSE_TO_FINE:
            return list(coarse)
        fine = [
            self._encode_fine_windows(document, windows)
            for document, windows in zip(self._documents, coarse, strict=True)
        ]
        for batch in _batch_windows(fine):
            self._run_windows(batch, backend, on_progress)
        joined = []
        for coarse_windows, fine_windows in zip(coarse, self._read_windows(fine), strict=True):
            if len(fine_windows):
                joined.append(join_windows(coarse_windows, fine_windows))
            else:
                joined.append(coarse_windows)
        return joined

    def run_grid(self, backend_of: BackendOf, on_progress: OnProgress = None) -> settings_grid.GridFindings | None:
        """Run the grid and return the results of each document in order.

        The model is loaded only if a window is not in the cache.

        Returns:
            The results. None if the settings request no grid, or if the model's back end does not return the statistics
            for a grid.
        """
        if self._grid is None:
            return None
        backend = partial(backend_of, self.model)
        findings = []
        for group in _group_documents(self._iterate_grid_windows_by_document(self._grid)):
            windows = [grid_window.window for grid_windows in group for grid_window in grid_windows]
            self._run_windows(windows, backend, on_progress, "grid")
            findings += [
                settings_grid.read_grid(self.model, grid_windows, self._grid, self._caches) for grid_windows in group
            ]
        return settings_grid.GridFindings(self._grid, findings)

    def quote_strongest_passages(self, extractions: Sequence[Extraction]) -> Iterator[dict[int, Quotation]]:
        """Yield the quotations of each document's strongest passages, by the number of their window."""
        windows = map(self._encode_strongest_windows, extractions)
        for extraction, rows in zip(extractions, self._read_rows(windows), strict=True):
            text = extraction.document.text
            row_by_start = {row["start"]: row for row in rows.to_pylist()}
            quotations = {}
            for number in extraction.memorisation.strongest:
                row = row_by_start[int(extraction.windows.start[number])]
                quotations[number] = quote_window(text, row, self.model.tokenizer)
            yield quotations

    def is_as_long_as_a_window(self, document: SearchedDocument) -> bool:
        """Return True if a document is long enough for at least one window."""
        return bool(window_probabilities.encode_document_windows(self.model, document, [0], self.options.lengths))

    def bound_near_verbatim(
        self, extraction: Extraction, number: int, backend_of: BackendOf, differing: int, beams: int
    ) -> float:
        """Compute a lower bound of the log-probability of a continuation near the suffix of a window.

        The bound is never below the log-probability of the suffix itself.

        Args:
            extraction: The results of the document.
            number: The number of the window.
            backend_of: Loads the model.
            differing: The maximum number of tokens that may differ from the suffix.
            beams: The number of continuations to follow at a time.
        """
        # The import loads torch, which is not needed if everything is cached.
        from audit_pipeline.extras.extraction.continuations import bound_near_verbatim  # noqa: PLC0415

        window = self.encode_window(extraction, number)
        bound = bound_near_verbatim(self.load_local_pass(backend_of), window, differing, beams)
        # The two values come from separate passes, so their last digits may differ.
        return max(bound, float(extraction.windows.log_p_top[number]))

    def load_local_pass(self, backend_of: BackendOf) -> ForwardPass:
        """Load the model for generation. Its weights must be on this machine."""
        from audit_pipeline.token_statistics.loading import load_local_pass  # noqa: PLC0415

        return load_local_pass(self.model, backend_of)

    def encode_window(self, extraction: Extraction, number: int) -> EncodedText:
        """Return the tokens of a document's window ``number``."""
        start = int(extraction.windows.start[number])
        [window] = window_probabilities.encode_document_windows(
            self.model, extraction.document, [start], self.options.lengths
        )
        return window

    def _encode_strongest_windows(self, extraction: Extraction) -> list[EncodedText]:
        starts = extraction.windows.start[list(extraction.memorisation.strongest)].tolist()
        return window_probabilities.encode_document_windows(
            self.model, extraction.document, starts, self.options.lengths
        )

    def _iterate_grid_windows_by_document(self, grid: settings_grid.Grid) -> Iterator[list[settings_grid.GridWindow]]:
        for document in self._documents:
            yield settings_grid.encode_grid_windows(self.model, document.text, grid, self._context_length)

    def _iterate_first_windows(self) -> Iterator[list[EncodedText]]:
        return _batch_windows(map(self._encode_first_windows, self._documents))

    def _encode_first_windows(self, document: SearchedDocument) -> list[EncodedText]:
        """Encode the windows that are run first: one per step for a stride in characters, else the coarse windows."""
        lengths = self.options.lengths
        if document.answer is not None:
            return window_probabilities.encode_document_windows(self.model, document, [0], lengths)
        if self.options.step is not None:
            step_starts = range(0, len(document.text), self.options.step)
            return window_probabilities.encode_windows_at(self.model, document.text, step_starts, lengths)
        [tokens] = encode(self.model, [document.text])
        first_tokens = tile_document(tokens.char_start, lengths.prefix, lengths.suffix)
        starts = [int(tokens.char_start[token]) for token in first_tokens]
        return window_probabilities.encode_windows_at(self.model, document.text, starts, lengths)

    def _encode_fine_windows(self, document: SearchedDocument, coarse: Windows) -> list[EncodedText]:
        """Encode the fine windows near likely coarse windows. An answer has none, because it has one window."""
        if not len(coarse) or document.answer is not None:
            return []
        [tokens] = encode(self.model, [document.text])
        half = self.options.lengths.suffix // 2
        half_tokens = np.searchsorted(tokens.char_start, coarse.start) + half
        half_later = tokens.char_start[np.minimum(half_tokens, len(tokens.char_start) - 1)]
        starts = choose_fine_starts(
            coarse.start.tolist(), half_later.tolist(), coarse.half, math.log(THRESHOLDS[0]), half
        )
        return window_probabilities.encode_windows_at(self.model, document.text, starts, self.options.lengths)

    def _run_windows(
        self,
        windows: Sequence[EncodedText],
        backend: Callable[[], Backend],
        on_progress: OnProgress,
        kind: Kind = "extraction",
    ) -> None:
        summary = window_probabilities.run_windows(self.model, windows, self._caches, backend, on_progress, kind)
        self.unreadable_parts = tuple(dict.fromkeys([*self.unreadable_parts, *summary.unreadable_parts]))

    def _read_windows(self, windows_by_document: Iterable[list[EncodedText]]) -> Iterator[Windows]:
        return map(windows_from_rows, self._read_rows(windows_by_document))

    def _read_rows(self, windows_by_document: Iterable[list[EncodedText]]) -> Iterator[pa.Table]:
        """Yield the cached rows of each document's windows. One lookup serves the windows of many documents."""
        for group in _group_documents(windows_by_document):
            rows = window_probabilities.read_windows(self.model, list(chain.from_iterable(group)), self._caches)
            digests = rows.column("text_sha256").to_pylist()
            for windows in group:
                sha256 = ""
                if windows:
                    sha256 = windows[0].text_sha256
                begin = bisect_left(digests, sha256)
                end = bisect_right(digests, sha256)
                yield rows.slice(begin, end - begin)


def _group_documents(windows_by_document: Iterable[list[PerDocument]]) -> Iterator[list[list[PerDocument]]]:
    """Yield groups of documents that together have at least ``_WINDOWS_PER_BATCH`` windows."""
    group: list[list[PerDocument]] = []
    for windows in windows_by_document:
        group.append(windows)
        if sum(map(len, group)) >= _WINDOWS_PER_BATCH:
            yield group
            group = []
    if group:
        yield group


def _batch_windows(windows_by_document: Iterable[list[EncodedText]]) -> Iterator[list[EncodedText]]:
    """Yield the windows of all documents in batches."""
    windows = chain.from_iterable(windows_by_document)
    while batch := list(islice(windows, _WINDOWS_PER_BATCH)):
        yield batch
