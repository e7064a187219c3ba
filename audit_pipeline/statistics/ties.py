"""Ties of means: two means that are equal but for rounding have the same rank.

The mean of .1 and .7 and that of .3 and .5 are equal, and their float64 sums are not. A rank that counts the last digit
decides by the order of an addition. So means are merged before they are ranked if they differ by no more than what
rounding can have done to both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from audit_pipeline.statistics.roc import Floats, Places

ROUNDINGS_OF_A_SCORE = 32
"""A score is a mean over tokens itself. numpy adds in pairs above blocks of 128, so that each of up to a million values
passes through at most 16 + 3 + 13 additions."""


def bound_mean_error(mean_magnitudes: npt.ArrayLike, counts: npt.ArrayLike) -> Floats:
    """Return by how much means of scores may be off through rounding.

    Each of n additions and divisions is off by half of epsilon at most, relative to the sum of the magnitudes (Higham
    2002, section 4.2). Twice that is allowed.

    Args:
        mean_magnitudes: The means of the scores' absolute values, float array of shape (n_means,).
        counts: How many scores each mean is of, an array of shape (n_means,) or one number.
    """
    roundings = np.asarray(counts, dtype=np.float64) + ROUNDINGS_OF_A_SCORE
    return np.asarray(roundings * np.finfo(np.float64).eps * np.asarray(mean_magnitudes, dtype=np.float64))


def compute_group_means(values: Floats, places: Places) -> tuple[Floats, Floats]:
    """Return the mean of each group, and by how much it may be off: two float arrays of shape (n_groups,).

    Args:
        values: Scores, float array of shape (n,).
        places: The number of each score's group, from 0, of shape (n,).
    """
    counts = np.bincount(places)
    magnitudes = np.bincount(places, weights=np.abs(values)) / counts
    return np.bincount(places, weights=values) / counts, bound_mean_error(magnitudes, counts)


def merge_ties(values: Floats, errors: Floats) -> Floats:
    """Return the values, with one number for all that rounding alone may have separated.

    Args:
        values: Means, float array of shape (n,).
        errors: By how much each may be off, as of :func:`bound_mean_error`, of the same shape.

    Returns:
        Float array of shape (n,). Neighbours in the order of size that differ by no more than their errors together
        have the value of the smaller one.
    """
    order = np.argsort(values, kind="stable")
    ordered, allowed = values[order], errors[order]
    is_first = np.ones(len(values), dtype=bool)
    is_first[1:] = np.diff(ordered) > allowed[1:] + allowed[:-1]
    merged = np.empty_like(values)
    merged[order] = ordered[is_first][np.cumsum(is_first) - 1]
    return merged


def merge_tied_means(first: Floats, first_errors: Floats, second: Floats, second_errors: Floats) -> list[Floats]:
    """Return two sets of means, of shapes (n,) and (m,), with ties between and within them merged."""
    merged = merge_ties(np.concatenate([first, second]), np.concatenate([first_errors, second_errors]))
    return np.split(merged, [len(first)])
