"""A grid of extraction settings: the probability of the same suffixes at many prefix lengths and sampling settings.

A single setting may have been chosen because of its result. Besides, prefixes from the middle of a document reveal less
memorisation than its beginning (Xu et al. 2025). Therefore the grid evaluates the same suffixes at every setting.
Nothing is sampled. One pass over a window yields the probability of its suffix at every sampling setting, and also of
the shorter suffixes with which it begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
import scipy

from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.memorisation import Ints
from audit_pipeline.extras.extraction.window_probabilities import (
    compute_row_key,
    count_tokens_with_characters,
    encode_windows_between,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.statistics.conformal import choose_texts_per_group
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import BEST_TOKENS, DECODINGS
from audit_pipeline.token_statistics.cached_texts import Caches
from audit_pipeline.token_statistics.tokens import EncodedText, encode

PREFIXES = (25, 50, 100, 200)
SUFFIXES = (20, 30, 50)
FIRST_SUFFIX_TOKEN = PREFIXES[0]
"""The index of the document's token at which the first suffix begins."""
FROM_BEGINNING = 0
"""The prefix length that stands for all tokens of the document before the suffix."""
FIRST_CHOICES = (0.0, "all")
"""The sampling setting that always takes the first choice: a temperature of 0."""
SAMPLING_SETTINGS = (*DECODINGS, FIRST_CHOICES)
"""All sampling settings, each a temperature and the set of tokens to sample from."""
SAMPLING_OF_SEARCH = (1.0, f"top-k {BEST_TOKENS}")
"""The sampling setting of the search itself (column log_p_top_40)."""


@dataclass(frozen=True)
class GridSetting:
    """One setting of the grid.

    Attributes:
        prefix: The length of the prefix in tokens, or ``FROM_BEGINNING``.
        suffix: The length of the suffix in tokens.
        temperature: The temperature of sampling.
        drawn_from: The set of tokens to sample from, such as ``top-k 40`` or ``all``.
    """

    prefix: int
    suffix: int
    temperature: float
    drawn_from: str


@dataclass(frozen=True)
class Grid:
    """All combinations of prefix lengths, suffix lengths and sampling settings (``SAMPLING_SETTINGS``).

    Attributes:
        prefixes: The lengths of prefixes in tokens.
        suffixes: The lengths of suffixes in tokens.
        search_setting: The setting of the search itself, which was fixed before the grid was run.
    """

    prefixes: tuple[int, ...]
    suffixes: tuple[int, ...]
    search_setting: GridSetting

    @property
    def suffix_stride(self) -> int:
        """Return the distance between suffixes in tokens: the longest suffix."""
        return max(self.suffixes)

    def list_settings(self, prefix: int) -> list[GridSetting]:
        """Return the settings of a prefix length, in the order of the rows of :attr:`DocumentGrid.log_p`."""
        return [
            GridSetting(prefix, suffix, *sampling) for suffix, sampling in product(self.suffixes, SAMPLING_SETTINGS)
        ]


def build_grid(lengths: WindowLengths, context_length: int) -> Grid:
    """Build the grid that includes the ``lengths`` of a search.

    Args:
        lengths: The lengths of prefix and suffix in the search.
        context_length: The model's context in tokens. Prefixes are left out if they do not fit with the longest suffix.
    """
    suffixes = tuple(sorted({*SUFFIXES, lengths.suffix}))
    all_prefixes = sorted({*PREFIXES, lengths.prefix})
    prefixes = [prefix for prefix in all_prefixes if prefix + max(suffixes) < context_length]
    return Grid((*prefixes, FROM_BEGINNING), suffixes, GridSetting(lengths.prefix, lengths.suffix, *SAMPLING_OF_SEARCH))


@dataclass(frozen=True, eq=False)
class GridWindow:
    """A window of the grid.

    Attributes:
        prefix: The prefix length in tokens.
        begins: Array of shape (n_suffixes,): the first characters of the suffixes in the window.
        window: The tokens of the window.
    """

    prefix: int
    begins: Ints
    window: EncodedText


def encode_grid_windows(model: TokenizedModel, document: str, grid: Grid, context_length: int) -> list[GridWindow]:
    """Encode the windows of a document for the grid.

    The document is cut into suffixes of ``grid.suffix_stride`` tokens, from the token ``FIRST_SUFFIX_TOKEN``. Remaining
    tokens at the end are left out. A suffix has the same characters at every prefix length.

    Args:
        model: The model whose tokenizer is used.
        document: The whole text.
        grid: The grid of settings.
        context_length: The model's context in tokens.

    Returns:
        One window per suffix and prefix length if enough tokens precede the suffix. One further window contains the
        beginning of the document and all suffixes that fit into ``context_length`` tokens.
    """
    [tokens] = encode(model, [document])
    starts = tokens.char_start.tolist()
    ends = tokens.char_end.tolist()
    stride = grid.suffix_stride
    suffix_tokens = range(FIRST_SUFFIX_TOKEN, count_tokens_with_characters(tokens) - stride + 1, stride)
    begins = np.array([ends[token - 1] for token in suffix_tokens], dtype=np.int64)
    plans: list[tuple[int, Ints]] = []
    spans: list[tuple[int, int, int]] = []
    for prefix in grid.prefixes:
        if prefix == FROM_BEGINNING:
            count = sum(token + stride < context_length for token in suffix_tokens)
            if count:
                plans.append((prefix, begins[:count]))
                spans.append((0, int(begins[0]), ends[suffix_tokens[count - 1] + stride - 1]))
            continue
        for token, begin in zip(suffix_tokens, begins, strict=True):
            if token < prefix:
                continue
            start = 0
            if token > prefix:
                start = starts[token - prefix]
            plans.append((prefix, np.array([begin])))
            spans.append((start, int(begin), ends[token + stride - 1]))
    grid_windows = []
    for (prefix, suffix_begins), window in zip(plans, encode_windows_between(model, document, spans), strict=True):
        if window is not None:
            grid_windows.append(GridWindow(prefix, suffix_begins, window))
    return grid_windows


@dataclass(frozen=True, eq=False)
class DocumentGrid:
    """The results of a grid for one document, by prefix length. Prefix lengths without a suffix are missing.

    Attributes:
        begins: Arrays of shape (n_suffixes,): the first characters of the suffixes.
        log_p: Arrays of shape (n_settings, n_suffixes): the log-probability of each suffix at each setting of the
            prefix length, in nats. Minus infinity if the suffix cannot be sampled.
    """

    begins: Mapping[int, Ints]
    log_p: Mapping[int, Floats]

    @cached_property
    def max_suffix_count(self) -> int:
        """Return the largest number of suffixes at any prefix length."""
        return max(map(len, self.begins.values()), default=0)

    def count(self, prefix: int) -> int:
        """Count the suffixes at a prefix length."""
        return len(self.begins.get(prefix, ()))


@dataclass(frozen=True, eq=False)
class GridFindings:
    """A grid and its results for each document."""

    grid: Grid
    documents: Sequence[DocumentGrid]


def read_grid(model: TokenizedModel, windows: Sequence[GridWindow], grid: Grid, caches: Caches) -> DocumentGrid:
    """Read the results of a grid for a document whose windows are in the cache."""
    keys = [compute_row_key(model, grid_window.window, "grid") for grid_window in windows]
    rows = caches.of(model, "grid").read(keys)
    row_numbers = {key: number for number, key in enumerate(rows.column("key").to_pylist())}
    ranks = rows.column("rank").combine_chunks()
    offsets = np.concatenate([[0], np.cumsum(ranks.value_lengths().to_numpy())])
    char_end = rows.column("char_end").combine_chunks().flatten().to_numpy()
    drawn = rows.column("log_p_drawn").combine_chunks().flatten().to_numpy()
    drawn = drawn.astype(np.float64).reshape(-1, len(DECODINGS))
    # A first choice has probability 1 at a temperature of 0, every other token 0.
    token_log_p = np.column_stack([drawn, np.where(ranks.flatten().to_numpy() == 0, 0.0, -np.inf)])
    begins: dict[int, list[int]] = {}
    log_p: dict[int, list[Floats]] = {}
    for key, grid_window in zip(keys, windows, strict=True):
        row = row_numbers[key]
        row_slice = slice(offsets[row], offsets[row + 1])
        # A suffix holds the tokens that end after its first character.
        cuts = np.searchsorted(char_end[row_slice], grid_window.begins[1:], side="right")
        suffix_parts = np.split(token_log_p[row_slice], cuts)
        for begin, tokens in zip(grid_window.begins.tolist(), suffix_parts, strict=True):
            begins.setdefault(grid_window.prefix, []).append(begin)
            # If a suffix has fewer tokens than a suffix length, all of its tokens are summed. The sums have one row per
            # suffix length and one column per sampling setting.
            last_tokens = [min(suffix, len(tokens)) - 1 for suffix in grid.suffixes]
            sums = np.cumsum(tokens, axis=0)[last_tokens]
            log_p.setdefault(grid_window.prefix, []).append(sums.reshape(-1).astype(np.float32))
    return DocumentGrid(
        begins={prefix: np.array(suffix_begins, dtype=np.int64) for prefix, suffix_begins in begins.items()},
        log_p=_stack_by_prefix(log_p),
    )


def _stack_by_prefix(log_p: Mapping[int, Sequence[Floats]]) -> dict[int, Floats]:
    return {prefix: np.stack(suffixes, axis=1) for prefix, suffixes in log_p.items()}


def compute_grid_p_values(audited: Sequence[DocumentGrid], held_out: Sequence[DocumentGrid]) -> list[float | None]:
    """Compute a p-value per audited document that stays valid although each document is judged by its best setting.

    An audited document is compared within a set: itself and the held-out documents with enough suffixes. At each
    setting, each document gets a rank-based p-value within the set: the share of documents whose likeliest suffix is at
    least as likely. The statistic of a document is its smallest p-value over all settings. The final p-value is the
    share of the set with a statistic at least as small as that of the audited document.

    The statistic depends on the set and not on which document is audited. If the document is exchangeable with the
    held-out documents, then P(p <= a) <= a for any number and any dependence of settings.

    The same number of suffixes is compared for each document of the set, evenly spread over the document. A prefix
    length is left out if a document of the set has no suffix with it.

    Returns:
        One p-value per audited document. None if the document has no suffix, or if no held-out document has one.
    """
    held_out_with_suffixes = [document for document in held_out if document.max_suffix_count]
    if not held_out_with_suffixes:
        return [None] * len(audited)
    max_count = choose_texts_per_group([document.max_suffix_count for document in held_out_with_suffixes])

    @cache
    def find_likeliest(document: DocumentGrid, prefix: int, count: int) -> Floats:
        values = document.log_p[prefix]
        chosen = np.linspace(0, values.shape[1] - 1, count).round().astype(int)
        return np.asarray(values[:, chosen].max(axis=1))

    p_values: list[float | None] = []
    for document in audited:
        min_count = min(document.max_suffix_count, max_count)
        compared = [document]
        compared += [other for other in held_out_with_suffixes if other.max_suffix_count >= min_count]
        columns = []
        for prefix in document.log_p:
            count = min(other.count(prefix) for other in compared)
            if count:
                columns.append(np.stack([find_likeliest(other, prefix, count) for other in compared]))
        if not columns:
            p_values.append(None)
            continue
        # Ties get the largest rank, so that they count against significance.
        ranks = scipy.stats.rankdata(-np.concatenate(columns, axis=1), method="max", axis=0)
        smallest = ranks.min(axis=1)
        p_values.append(float((smallest <= smallest[0]).mean()))
    return p_values


def iterate_grid_rows(document: DocumentGrid, grid: Grid) -> Iterator[dict[str, object]]:
    """Yield the rows of EXTRACTION_GRID for a document, without the columns of the document, pair and run."""
    for prefix, log_p in document.log_p.items():
        for setting, values in zip(grid.list_settings(prefix), log_p, strict=True):
            best = int(values.argmax())
            best_log_p: float | None = None
            best_start: int | None = None
            if np.isfinite(values[best]):
                best_log_p = float(values[best])
                best_start = int(document.begins[prefix][best])
            yield {
                "prefix_tokens": prefix,
                "suffix_tokens": setting.suffix,
                "temperature": setting.temperature,
                "drawn_from": setting.drawn_from,
                "is_named": setting == grid.search_setting,
                "places": len(values),
                "reached": int((values >= math.log(REPRODUCED_FROM)).sum()),
                "log_p": best_log_p,
                "start": best_start,
            }
