"""A grid of settings: how likely a model gives suffixes of a document whatever the prefix, the suffix and the drawing.

A search at one setting can be said to have been chosen for what it shows, and prefixes from the middle of a document
show less than its beginning (Xu et al. 2025). So the same suffixes are asked for at every setting. Nothing is drawn:
one pass over a window gives the probability of each beginning of its suffix, however the tokens are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

import numpy as np
import scipy

from audit_pipeline.extras.extraction.defaults import WindowLengths
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
FIRST = PREFIXES[0]
"""The token of a document that its first suffix begins with."""
FROM_BEGINNING = 0
"""The prefix length that means: all tokens of the document before the suffix."""
FIRST_CHOICES = (0.0, "all")
"""The way of drawing that always takes the first choice: a temperature of 0."""
WAYS = (*DECODINGS, FIRST_CHOICES)
NAMED_WAY = (1.0, f"top-k {BEST_TOKENS}")
"""The way of drawing that the search itself reports (log_p_top_40)."""


@dataclass(frozen=True)
class GridSetting:
    """How a suffix is asked for: tokens that the model is given (``FROM_BEGINNING``: all) and has to give, and how each
    is drawn.
    """

    prefix: int
    suffix: int
    temperature: float
    drawn_from: str


@dataclass(frozen=True)
class Grid:
    """The lengths of prefixes and of suffixes, each with each and with every one of ``WAYS``; ``named`` is the setting
    that was named beforehand.
    """

    prefixes: tuple[int, ...]
    suffixes: tuple[int, ...]
    named: GridSetting

    @property
    def suffix_stride(self) -> int:
        """Tokens from one suffix to the next: the longest one."""
        return max(self.suffixes)

    def list_settings(self, prefix: int) -> list[GridSetting]:
        """The settings of a prefix length, in the order of :attr:`DocumentGrid.log_p`."""
        return [GridSetting(prefix, suffix, *way) for suffix, way in product(self.suffixes, WAYS)]


def build_grid(lengths: WindowLengths, room: int) -> Grid:
    """The grid with the ``lengths`` of a search in it, of the prefixes that fit into ``room`` tokens with the longest
    suffix and a start token.
    """
    suffixes = tuple(sorted({*SUFFIXES, lengths.suffix}))
    fitting = (prefix for prefix in sorted({*PREFIXES, lengths.prefix}) if prefix + max(suffixes) < room)
    return Grid((*fitting, FROM_BEGINNING), suffixes, GridSetting(lengths.prefix, lengths.suffix, *NAMED_WAY))


@dataclass(frozen=True, eq=False)
class GridWindow:
    """A window with a prefix of ``prefix`` tokens, and the characters at which the suffixes in it begin [k]."""

    prefix: int
    begins: Ints
    window: EncodedText


def encode_grid_windows(model: TokenizedModel, document: str, grid: Grid, room: int) -> list[GridWindow]:
    """The windows of a document: one for each suffix and prefix length, and one from the beginning with all suffixes
    that ``room`` tokens hold.

    The suffixes follow each other from the token ``FIRST`` on, ``grid.suffix_stride`` tokens each; a rest at the end is
    left out. A prefix length is asked for where so many tokens are before the suffix. Whatever the prefix, the suffix
    is the same characters.
    """
    [tokens] = encode(model, [document])
    starts, ends = tokens.char_start.tolist(), tokens.char_end.tolist()
    places = range(FIRST, count_tokens_with_characters(tokens) - grid.suffix_stride + 1, grid.suffix_stride)
    begins = np.array([ends[place - 1] for place in places], dtype=np.int64)
    asked: list[tuple[int, Ints, tuple[int, int, int]]] = []
    for prefix in grid.prefixes:
        if prefix == FROM_BEGINNING:
            count = sum(place + grid.suffix_stride < room for place in places)
            if count:
                last = ends[places[count - 1] + grid.suffix_stride - 1]
                asked.append((prefix, begins[:count], (0, int(begins[0]), last)))
            continue
        for place, begin in zip(places, begins, strict=True):
            if place >= prefix:
                start = starts[place - prefix] if place > prefix else 0
                asked.append((prefix, np.array([begin]), (start, int(begin), ends[place + grid.suffix_stride - 1])))
    windows = encode_windows_between(model, document, [between for _, _, between in asked])
    return [
        GridWindow(prefix, own, window)
        for (prefix, own, _), window in zip(asked, windows, strict=True)
        if window is not None
    ]


@dataclass(frozen=True, eq=False)
class DocumentGrid:
    """What a grid shows of a document, by prefix length; a length that it has no suffix at is absent.

    begins: the first characters of the suffixes [places]. log_p: the log-probability of each at each setting of the
    prefix length [settings, places], minus infinity where it cannot be drawn.
    """

    begins: Mapping[int, Ints]
    log_p: Mapping[int, Floats]

    @cached_property
    def max_suffix_count(self) -> int:
        """The most suffixes that were asked for at any prefix length."""
        return max(map(len, self.begins.values()), default=0)

    def count(self, prefix: int) -> int:
        """How many suffixes were asked for after so many tokens."""
        return len(self.begins.get(prefix, ()))


@dataclass(frozen=True, eq=False)
class GridFindings:
    """A grid, and what it shows of each document."""

    grid: Grid
    documents: Sequence[DocumentGrid]


def read_grid(model: TokenizedModel, windows: Sequence[GridWindow], grid: Grid, caches: Caches) -> DocumentGrid:
    """What a grid shows of a document whose ``windows`` have been run."""
    keys = [compute_row_key(model, grid_window.window, "grid") for grid_window in windows]
    rows = caches.of(model, "grid").read(keys)
    number = {key: place for place, key in enumerate(rows.column("key").to_pylist())}
    lists = {name: rows.column(name).combine_chunks() for name in ("rank", "char_end", "log_p_drawn")}
    flat = {name: values.flatten().to_numpy() for name, values in lists.items()}
    offsets = np.concatenate([[0], np.cumsum(lists["rank"].value_lengths().to_numpy())])
    drawn = flat["log_p_drawn"].astype(np.float64).reshape(-1, len(DECODINGS))
    steps = np.column_stack([drawn, np.where(flat["rank"] == 0, 0.0, -np.inf)])
    begins: dict[int, list[int]] = {}
    log_p: dict[int, list[Floats]] = {}
    for key, grid_window in zip(keys, windows, strict=True):
        own = slice(offsets[number[key]], offsets[number[key] + 1])
        # A suffix has the tokens that end after its first character.
        cuts = np.searchsorted(flat["char_end"][own], grid_window.begins[1:], side="right")
        for begin, tokens in zip(grid_window.begins.tolist(), np.split(steps[own], cuts), strict=True):
            begins.setdefault(grid_window.prefix, []).append(begin)
            # The first so many tokens of a suffix, all of it where it has fewer: [suffixes * ways].
            sums = np.cumsum(tokens, axis=0)[[min(suffix, len(tokens)) - 1 for suffix in grid.suffixes]]
            log_p.setdefault(grid_window.prefix, []).append(sums.reshape(-1).astype(np.float32))
    return DocumentGrid(
        {prefix: np.array(own, dtype=np.int64) for prefix, own in begins.items()},
        {prefix: np.stack(own, axis=1) for prefix, own in log_p.items()},
    )


def compute_grid_p_values(audited: Sequence[DocumentGrid], held_out: Sequence[DocumentGrid]) -> list[float | None]:
    """A p-value of each audited document that allows for every setting of the grid.

    The document and the held-out documents with as many suffixes are one set. At each setting each of the set gets a
    rank-based p-value within the set, (documents whose likeliest suffix is at least as likely) / (documents), and its
    statistic is the smallest at any setting. The document's p-value is the share of the set with a statistic at least
    as small. The statistic depends on the set as a whole and not on which of it is audited: where the document is
    exchangeable with the held-out ones, P(p <= a) <= a, however many settings there are and however they depend on each
    other.

    As in a search, equally many suffixes of each document are compared, evenly spread. A setting that one of the set
    has no suffix at is left out. None for a document without a suffix, and where no held-out document has one.
    """
    known = [document for document in held_out if document.max_suffix_count]
    if not known:
        return [None] * len(audited)
    most = choose_texts_per_group([document.max_suffix_count for document in known])

    @cache
    def strongest(document: DocumentGrid, prefix: int, count: int) -> Floats:
        values = document.log_p[prefix]
        return np.asarray(values[:, np.linspace(0, values.shape[1] - 1, count).round().astype(int)].max(axis=1))

    found: list[float | None] = []
    for document in audited:
        least = min(document.max_suffix_count, most)
        compared = [document, *(other for other in known if other.max_suffix_count >= least)]
        counts = {prefix: min(other.count(prefix) for other in compared) for prefix in document.log_p}
        columns = [
            np.stack([strongest(other, prefix, count) for other in compared])
            for prefix, count in counts.items()
            if count
        ]
        if not columns:
            found.append(None)
            continue
        # Ties get the largest rank: they count against significance.
        smallest = scipy.stats.rankdata(-np.concatenate(columns, axis=1), method="max", axis=0).min(axis=1)
        found.append(float((smallest <= smallest[0]).mean()))
    return found


def iterate_grid_rows(document: DocumentGrid, grid: Grid) -> Iterator[dict[str, object]]:
    """What a grid shows of a document at each setting, as EXTRACTION_GRID has it, but for document, pair and run."""
    for prefix, log_p in document.log_p.items():
        for setting, values in zip(grid.list_settings(prefix), log_p, strict=True):
            best = int(values.argmax())
            can_be_drawn = bool(np.isfinite(values[best]))
            yield {
                **{"prefix_tokens": prefix, "suffix_tokens": setting.suffix},
                **{"temperature": setting.temperature, "drawn_from": setting.drawn_from},
                "is_named": setting == grid.named,
                "places": len(values),
                "reached": int((values >= math.log(REPRODUCED_FROM)).sum()),
                "log_p": float(values[best]) if can_be_drawn else None,
                "start": int(document.begins[prefix][best]) if can_be_drawn else None,
            }
