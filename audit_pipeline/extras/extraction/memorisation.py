"""Conclusions from a document's windows: reproduced passages, covered shares, and positions for finer windows.

A window is a prefix followed by a suffix of a given number of tokens. The suffixes of coarse windows are contiguous, so
that every token after the first prefix belongs to a suffix. Fine windows begin between coarse windows. They are run
only if the coarse windows show that they could be likely.

The log-probability ``log_p`` is that of generating a window's suffix verbatim after its prefix, if the model samples
from its whole distribution (Hayes et al. 2025). For ``log_p_top`` each token is sampled from the ``BEST_TOKENS`` most
likely tokens. It is minus infinity if a token of the suffix is not among them.

A model's API may omit the most likely tokens of some positions. Then the number of first choices and the
number of tokens outside the best are unknown (None), and ``log_p_top`` is ``log_p``. This is a lower bound if the
suffix can be sampled from the best tokens.
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

FINE_STEP_CHARACTERS = 10
"""The distance between the starts of fine windows, in characters (the grid of Cooper et al. 2025)."""
SLACK = 0.8
"""An allowance in nats per token. Half a coarse suffix counts as likely if its log-probability is at most this far
below the threshold. The same tokens can be more likely in a fine window, because other tokens precede them there."""


def tile_document(token_starts: Starts, prefix: int, suffix: int) -> list[int]:
    """Return the numbers of the tokens at which coarse windows begin.

    Args:
        token_starts: The first character of each of the document's tokens.
        prefix: The length of the prefix in tokens.
        suffix: The length of the suffix in tokens, and the distance between windows.

    Returns:
        Sorted token numbers. The last window ends with the document. The list is empty if the document is shorter than
        a window.
    """
    last = len(token_starts) - prefix - suffix
    if last < 0:
        return []
    return sorted({*range(0, last + 1, suffix), last})


def choose_fine_starts(
    starts: Sequence[int],
    half_later: Sequence[int],
    halves: Floats,
    threshold: float,
    half: int,
    step: int = FINE_STEP_CHARACTERS,
) -> list[int]:
    """Choose the characters at which fine windows begin.

    A fine window begins between two coarse windows. Its suffix contains the second half of the first coarse suffix, or
    the first half of the second one. If both halves are less likely than the threshold, the fine window is, too.

    Args:
        starts: The first characters of the n coarse windows.
        half_later: For each coarse window, the first character of a window whose suffix begins half a suffix later.
        halves: The log-probabilities of both halves of each coarse suffix, an array of shape (n, 2), in nats.
        threshold: The log-probability that a fine window should reach.
        half: The number of tokens in the first half of a suffix.
        step: The distance between fine windows, in characters.

    Returns:
        Sorted characters on the grid of ``step``, without ``starts``.
    """
    likely = halves >= threshold - SLACK * half
    # A window can begin after the last coarse window, because the text from a later start is tokenised by itself. This
    # can yield enough tokens for a window, although the document has too few tokens from there.
    likely[-1:, 1] |= likely[-1:, 0]
    spans: list[tuple[int, int]] = []
    for start, on, is_likely in zip(starts, half_later, likely[:, 1], strict=True):
        if is_likely:
            spans.append((start, on))
    for on, following, is_likely in zip(half_later[:-1], starts[1:], likely[1:, 0], strict=True):
        if is_likely:
            spans.append((on, following))
    fine: set[int] = set()
    for low, high in spans:
        first_on_grid = -(-low // step) * step
        fine.update(range(first_on_grid, high + 1, step))
    return sorted(fine - set(starts))


THRESHOLDS = (REPRODUCED_FROM, 0.01, 0.1, 0.5)
"""The probabilities of a suffix for which covered shares are reported."""
MAX_STRONGEST = 10
"""The number of passages that are reported per document."""
MAX_GAP_CHARACTERS = 8
"""Suffixes at most this many characters apart form one run, because windows may cut the text between them into
different tokens."""

LIKELIEST = ("rank", "log_mass_40")
"""The token statistics that are needed for the probability under sampling from the best tokens."""

_READ = ("token_id", "char_start", "char_end", "logprob", "argmax_id", "rank", "log_mass_40")

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Windows:
    """The n windows of one document, ordered by their start. Each array has the shape (n,) unless noted.

    Attributes:
        start: The first character of each window.
        begin: The first character of each suffix.
        end: The character after each suffix.
        log_p: The log-probability of each suffix under the whole distribution, in nats.
        log_p_top: The log-probability of each suffix under sampling from the best tokens, in nats.
        outside: The number of suffix tokens outside the ``BEST_TOKENS`` best, or None if unknown.
        matches: The number of suffix tokens that are, or tie with, the model's first choice, or None if unknown.
        tokens: The number of suffix tokens.
        half: The log-probabilities of both halves of each suffix under sampling from the best tokens, in nats, of shape
            (n, 2). Unlike in ``log_p_top``, tokens outside the best count with their probability.
        top_is_known: Whether ``log_p_top`` is known. If not, it equals ``log_p``.
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
        """Return a mask of shape (n,) of the suffixes that are known to consist of the model's first choices."""
        if self.matches is None:
            return np.zeros(len(self), dtype=np.bool_)
        return np.equal(self.matches, self.tokens)

    @property
    def reproduced(self) -> Mask:
        """Return a mask of shape (n,) of the suffixes that the model reproduces.

        A suffix is reproduced if its probability under top-k sampling (k = ``BEST_TOKENS``) reaches
        ``REPRODUCED_FROM``. It is also reproduced if each of its tokens is a most likely token of the model.
        """
        return np.logical_or(self.log_p_top >= math.log(REPRODUCED_FROM), self.reproduced_greedily)


def windows_from_rows(rows: pa.Table) -> Windows:
    """Build the windows of one document from cached rows (schema EXTRACTION) in the order of ``start``."""
    ends = rows.column("logprob").combine_chunks().offsets.to_numpy()
    flat = {name: np.asarray(rows[name].combine_chunks().flatten(), dtype=np.float64) for name in _READ}
    # The list of a statistic is empty if the model's back end does not return it.
    available = {name for name, values in flat.items() if len(values) == len(flat["logprob"])}
    begins = ends[:-1]
    lasts = ends[1:]
    middles = (begins + lasts) // 2
    log_p = flat["logprob"]
    is_first_choice = _find_first_choices(flat, available)
    outside = None
    if "rank" in available:
        outside = _count_in_slices(flat["rank"] >= BEST_TOKENS, begins, lasts)
    matches = None
    if is_first_choice is not None:
        matches = _count_in_slices(is_first_choice, begins, lasts)
    top_is_known = {*LIKELIEST} <= available
    within = log_p
    if top_is_known:
        within = log_p - flat["log_mass_40"]
    log_p_top = _sum_slices(within, begins, lasts)
    if top_is_known and outside is not None:
        log_p_top = np.where(outside > 0, -np.inf, log_p_top)
    return Windows(
        start=rows.column("start").to_numpy().astype(np.int64),
        begin=flat["char_start"][begins].astype(np.int64),
        end=flat["char_end"][lasts - 1].astype(np.int64),
        log_p=_sum_slices(log_p, begins, lasts),
        log_p_top=log_p_top,
        outside=outside,
        matches=matches,
        tokens=(lasts - begins).astype(np.int64),
        half=np.stack([_sum_slices(within, begins, middles), _sum_slices(within, middles, lasts)], axis=1),
        top_is_known=top_is_known,
    )


def _find_first_choices(flat: dict[str, Floats], available: set[str]) -> Mask | None:
    if "rank" in available:
        return np.equal(flat["rank"], 0)
    if "argmax_id" in available:
        return np.equal(flat["argmax_id"], flat["token_id"])
    return None


def join_windows(*parts: Windows) -> Windows:
    """Join the windows of several parts of one document, ordered by their start."""
    order = np.argsort(np.concatenate([part.start for part in parts]), kind="stable")
    joined: dict[str, Any] = {}
    for field in fields(Windows):
        if field.name != "top_is_known" and getattr(parts[0], field.name) is not None:
            joined[field.name] = np.concatenate([getattr(part, field.name) for part in parts])[order]
    return replace(parts[0], **joined)


@dataclass(frozen=True)
class Memorisation:
    """The conclusions from the windows of one document.

    Windows that are set apart are no evidence of memorisation (window_exclusions.py). They count only in ``windows``,
    ``set_apart`` and ``covered_set_apart``. No suffix contains the first tokens of a document, so no share reaches 1.

    Attributes:
        characters: The length of the document.
        windows: The number of windows.
        reproduced: The number of windows that the model reproduces.
        set_apart: The number of windows that are set apart.
        covered: For each of ``THRESHOLDS``, the share of characters in suffixes whose probability by ``log_p_top``
            reaches the threshold.
        greedy: The share of characters in suffixes of first choices only, or None if first choices are unknown.
        covered_set_apart: The share of characters in suffixes of windows that are set apart.
        longest_run: The length in characters of the longest run of suffixes that reach the lowest threshold. Gaps of up
            to ``MAX_GAP_CHARACTERS`` characters belong to a run.
        longest_run_words: The length of the same run in words separated by white space.
        strongest: The numbers of the windows that are most likely by ``log_p`` and do not overlap.
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
    """Draw the conclusions for one document.

    Args:
        windows: The n windows of the document.
        apart: A mask of shape (n,) of the windows that are set apart.
        text: The text of the document.
    """
    n_characters = len(text)

    def compute_covered_share(mask: Mask) -> float:
        return _count_covered_characters(windows, mask) / max(n_characters, 1)

    likely = [(windows.log_p_top >= math.log(threshold)) & ~apart for threshold in THRESHOLDS]
    runs = _find_covered_runs(windows, likely[0], MAX_GAP_CHARACTERS)
    begin, end = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
    greedy = None
    if windows.matches is not None:
        greedy = compute_covered_share(windows.reproduced_greedily & ~apart)
    return Memorisation(
        characters=n_characters,
        windows=len(windows),
        reproduced=int((windows.reproduced & ~apart).sum()),
        set_apart=int(apart.sum()),
        covered=tuple(compute_covered_share(mask) for mask in likely),
        greedy=greedy,
        covered_set_apart=compute_covered_share(apart),
        longest_run=end - begin,
        longest_run_words=len(text[begin:end].split()),
        strongest=select_strongest_windows(windows, ~apart, MAX_STRONGEST),
    )


def _find_covered_runs(windows: Windows, mask: Mask, gap: int = 0) -> list[tuple[int, int]]:
    """Return the runs [begin, end) of characters that suffixes cover. Gaps of up to ``gap`` characters are closed.

    ``mask`` selects the windows whose suffixes count.
    """
    runs: list[tuple[int, int]] = []
    for begin, end in sorted(zip(windows.begin[mask].tolist(), windows.end[mask].tolist(), strict=True)):
        if runs and begin <= runs[-1][1] + gap:
            run_begin, run_end = runs[-1]
            runs[-1] = (run_begin, max(run_end, end))
        else:
            runs.append((begin, end))
    return runs


def _count_covered_characters(windows: Windows, mask: Mask) -> int:
    return sum(end - begin for begin, end in _find_covered_runs(windows, mask))


def select_strongest_windows(windows: Windows, mask: Mask, max_windows: int | None = None) -> tuple[int, ...]:
    """Select the most likely windows by ``log_p`` whose suffixes do not overlap.

    Args:
        windows: The n windows of a document.
        mask: A mask of shape (n,) of the windows to select from.
        max_windows: The maximum number of windows. By default there is no maximum. Every other window of the mask then
            overlaps a selected window.

    Returns:
        The numbers of the windows, most likely first.
    """
    chosen: list[int] = []
    order = np.argsort(-windows.log_p, kind="stable")
    for number in order[mask[order]].tolist():
        begin = windows.begin[number]
        end = windows.end[number]
        if all(end <= windows.begin[other] or begin >= windows.end[other] for other in chosen):
            chosen.append(number)
        if len(chosen) == max_windows:
            break
    return tuple(chosen)


def _sum_slices(values: Floats, begins: Ints, ends: Ints) -> Floats:
    """Return the sums of ``values`` over the slices [begin, end)."""
    return np.array([values[begin:end].sum() for begin, end in zip(begins, ends, strict=True)], dtype=np.float64)


def _count_in_slices(mask: Mask, begins: Ints, ends: Ints) -> Ints:
    return _sum_slices(mask.astype(np.float64), begins, ends).astype(np.int64)
