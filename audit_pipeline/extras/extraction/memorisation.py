"""What windows show of a document: how likely each suffix is, how much the likely ones cover, and where to look closer.

A window is a prefix followed by a suffix of a given number of tokens. The suffixes of coarse windows follow each other,
so that every token after the first prefix is in one. A fine window is worth its pass only where the coarse ones show
that it could be likely.

``log_p`` is the log-probability with which the model, drawing from its whole distribution, gives a window's suffix word
for word after its prefix (Hayes et al. 2025); ``log_p_top`` the same where every token is drawn from the
``BEST_TOKENS`` best ones, minus infinity where a token of the suffix is not among them.

A model's interface need not give the best tokens of every place. What they would decide is then unknown (None): which
tokens are first choices, or outside of the best. ``log_p_top`` is then ``log_p``, which is never above it where the
suffix can be drawn from the best at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.statistics.claims import REPRODUCED_FROM
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.tables import BEST_TOKENS

Starts = npt.NDArray[np.integer]

FINE_STEP = 10
"""Characters between the beginnings of fine windows (the grid of Cooper et al. 2025)."""
SLACK = 0.8
"""A half of a coarse suffix counts as likely down to so many nats a token below the threshold: a fine window has other
tokens before it."""


def tile_document(token_starts: Starts, prefix: int, suffix: int) -> list[int]:
    """Numbers of the tokens at which coarse windows begin, for a document whose tokens begin at ``token_starts``.

    The last one ends with the document. None where the document is shorter than a window.
    """
    last = len(token_starts) - prefix - suffix
    if last < 0:
        return []
    return sorted({*range(0, last + 1, suffix), last})


def choose_fine_starts(
    starts: Sequence[int], half_on: Sequence[int], halves: Floats, threshold: float, half: int, step: int = FINE_STEP
) -> list[int]:
    """Where fine windows begin: the characters of the grid where one could be above ``threshold``, a log-probability.

    ``starts`` and ``half_on`` [n] are characters: the beginnings of coarse windows and of those whose suffix begins
    half a suffix later; ``halves`` [n, 2] log-probabilities of the halves of their suffixes; ``half`` the number of
    tokens in the first half.

    The suffix of a fine window that begins between two coarse ones holds the second half of the first one's suffix or
    the first half of the second one's; where both halves are less likely than the threshold, so is the window.
    """
    likely = halves >= threshold - SLACK * half
    # The same text, begun a little later, may be cut into fewer tokens and still have room for a window.
    likely[-1:, 1] |= likely[-1:, 0]
    spans = [(start, on) for start, on, is_likely in zip(starts, half_on, likely[:, 1], strict=True) if is_likely]
    between = zip(half_on[:-1], starts[1:], likely[1:, 0], strict=True)
    spans += [(on, following) for on, following, is_likely in between if is_likely]
    return sorted({at for low, high in spans for at in range(-(-low // step) * step, high + 1, step)} - set(starts))


THRESHOLDS = (REPRODUCED_FROM, 0.01, 0.1, 0.5)
"""The probabilities of a suffix that shares of a document are reported for."""
STRONGEST = 10
"""How many passages of a document are named."""
GAP = 8
"""Suffixes this many characters apart are on end: two windows may cut the text between them into tokens differently."""

LIKELIEST = ("rank", "log_mass_40")
"""The statistics of a token by which it is known whether, and how likely, it is drawn from the best ones."""

_READ = ("token_id", "char_start", "char_end", "logprob", "argmax_id", "rank", "log_mass_40")

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of one document, by their beginning; [n] each.

    start: first character of the window. begin, end: characters of its suffix. log_p, log_p_top: see above. outside:
    tokens of the suffix that are not among the ``BEST_TOKENS`` best. matches: tokens that are the model's first choice,
    or tied with it. tokens: tokens of the suffix. half: log_p_top of the first and the second half of the suffix,
    tokens outside taken as likely as they are: [n, 2]. outside and matches are None where they are unknown, and
    top_is_known is False where log_p_top is log_p for that.
    """

    start: Ints
    begin: Ints
    end: Ints
    log_p: Floats
    log_p_top: Floats
    outside: Ints | None
    matches: Ints | None
    tokens: Ints
    half: Floats
    top_is_known: bool

    def __len__(self) -> int:
        return len(self.start)

    @property
    def reproduced_greedily(self) -> Mask:
        """Whether the model is known to give the suffix word for word when it always takes its first choice."""
        return np.zeros(len(self), dtype=np.bool_) if self.matches is None else np.equal(self.matches, self.tokens)

    @property
    def reproduced(self) -> Mask:
        """Whether the model gives the suffix word for word: likely enough when it draws, or by its first choices."""
        return np.logical_or(self.log_p_top >= math.log(REPRODUCED_FROM), self.reproduced_greedily)


def windows_from_rows(rows: pa.Table) -> Windows:
    """From rows of the cache (EXTRACTION) of one document, in the order of ``start``."""
    ends = rows.column("logprob").combine_chunks().offsets.to_numpy()
    flat = {name: np.asarray(rows[name].combine_chunks().flatten(), dtype=np.float64) for name in _READ}
    # An empty list: the model's back end does not give it.
    given = {name for name, values in flat.items() if len(values) == len(flat["logprob"])}
    begins, lasts, middles = ends[:-1], ends[1:], (ends[:-1] + ends[1:]) // 2
    log_p = flat["logprob"]
    top_is_known = {*LIKELIEST} <= given
    within = log_p - flat["log_mass_40"] if top_is_known else log_p
    outside = _count_in_slices(flat["rank"] >= BEST_TOKENS, begins, lasts) if "rank" in given else None
    is_first = None
    if "rank" in given:
        is_first = flat["rank"] == 0
    elif "argmax_id" in given:
        is_first = flat["argmax_id"] == flat["token_id"]
    sums = _sum_slices(within, begins, lasts)
    return Windows(
        start=rows.column("start").to_numpy().astype(np.int64),
        begin=flat["char_start"][begins].astype(np.int64),
        end=flat["char_end"][lasts - 1].astype(np.int64),
        log_p=_sum_slices(log_p, begins, lasts),
        log_p_top=np.where(outside > 0, -np.inf, sums) if top_is_known and outside is not None else sums,
        outside=outside,
        matches=None if is_first is None else _count_in_slices(is_first, begins, lasts),
        tokens=(lasts - begins).astype(np.int64),
        half=np.stack([_sum_slices(within, begins, middles), _sum_slices(within, middles, lasts)], axis=1),
        top_is_known=top_is_known,
    )


def join_windows(*parts: Windows) -> Windows:
    """The windows of several parts of one document, by their beginning."""
    order = np.argsort(np.concatenate([part.start for part in parts]), kind="stable")
    joined: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])[order]
        for field in fields(Windows)
        if field.name != "top_is_known" and getattr(parts[0], field.name) is not None
    }
    return replace(parts[0], **joined)


@dataclass(frozen=True)
class Memorisation:
    """The conclusions from the windows of one document. Windows that are set apart count only where it is said.

    reproduced, set_apart: how many windows the model reproduces. covered: the share of the document's characters in a
    suffix at least as likely as each of ``THRESHOLDS``, by ``log_p_top``; greedy: the same of suffixes that the model
    gives by its first choices, None where these are unknown; covered_set_apart: of windows that are set apart.
    longest_run: the most characters on end in suffixes of the lowest threshold, gaps of up to ``GAP`` characters
    included; longest_run_words: the same stretch in words between white space. strongest: numbers of the windows that
    are likeliest by ``log_p``, no two of which overlap. The first prefix is in no suffix: of a short document no share
    can be 1.
    """

    characters: int
    windows: int
    reproduced: int
    set_apart: int
    covered: tuple[float, ...]
    greedy: float | None
    covered_set_apart: float
    longest_run: int
    longest_run_words: int
    strongest: tuple[int, ...]


def conclude_memorisation(windows: Windows, apart: Mask, text: str) -> Memorisation:
    """The conclusions on a document of this ``text``; ``apart`` [n] are the windows that are set apart."""
    characters = len(text)
    likely = [(windows.log_p_top >= math.log(threshold)) & ~apart for threshold in THRESHOLDS]
    begin, end = max(_find_covered_runs(windows, likely[0], GAP), key=lambda run: run[1] - run[0], default=(0, 0))
    return Memorisation(
        characters=characters,
        windows=len(windows),
        reproduced=int((windows.reproduced & ~apart).sum()),
        set_apart=int(apart.sum()),
        covered=tuple(_count_covered_characters(windows, which) / max(characters, 1) for which in likely),
        greedy=None
        if windows.matches is None
        else _count_covered_characters(windows, windows.reproduced_greedily & ~apart) / max(characters, 1),
        covered_set_apart=_count_covered_characters(windows, apart) / max(characters, 1),
        longest_run=end - begin,
        longest_run_words=len(text[begin:end].split()),
        strongest=select_strongest_windows(windows, ~apart, STRONGEST),
    )


def _find_covered_runs(windows: Windows, mask: Mask, gap: int = 0) -> list[tuple[int, int]]:
    """The stretches of characters that the suffixes of these windows cover, across gaps of so many characters."""
    runs: list[tuple[int, int]] = []
    for begin, end in sorted(zip(windows.begin[mask].tolist(), windows.end[mask].tolist(), strict=True)):
        if runs and begin <= runs[-1][1] + gap:
            runs[-1] = runs[-1][0], max(runs[-1][1], end)
        else:
            runs.append((begin, end))
    return runs


def _count_covered_characters(windows: Windows, mask: Mask) -> int:
    return sum(end - begin for begin, end in _find_covered_runs(windows, mask))


def select_strongest_windows(windows: Windows, mask: Mask, most: int | None = None) -> tuple[int, ...]:
    """The numbers of the likeliest of the windows of ``mask`` [n] by ``log_p``, no two of whose suffixes overlap.

    ``most``: at most so many; None: as many as there are, so that every window of the mask overlaps one of them.
    """
    chosen: list[int] = []
    order = np.argsort(-windows.log_p, kind="stable")
    for number in order[mask[order]].tolist():
        begin, end = windows.begin[number], windows.end[number]
        if all(end <= windows.begin[other] or begin >= windows.end[other] for other in chosen):
            chosen.append(number)
        if len(chosen) == most:
            break
    return tuple(chosen)


def _sum_slices(values: Floats, begins: Ints, ends: Ints) -> Floats:
    """The sum of ``values`` from each of ``begins`` to each of ``ends``."""
    return np.array([values[begin:end].sum() for begin, end in zip(begins, ends, strict=True)], dtype=np.float64)


def _count_in_slices(mask: Mask, begins: Ints, ends: Ints) -> Ints:
    return _sum_slices(mask.astype(np.float64), begins, ends).astype(np.int64)
