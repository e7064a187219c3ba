"""From scores to what a picture shows of them: a ROC curve as fine as the eye sees, shares of texts between edges.

What belongs here: thinning and binning. What does not: drawing (plots.py), metrics (metrics/, evidence/).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LINEAR_STEPS = 200
STEPS_A_DECADE = 20
SMALLEST_FPR = 1e-6
MOST_BINS = 40


@dataclass(frozen=True, eq=False)
class Spread:
    """How two sides' scores spread: b + 1 edges, and of each side the share of its texts in each of the b bins."""

    edges: Floats
    members: Floats
    nonmembers: Floats


def spread_of(members: Floats, nonmembers: Floats) -> Spread:
    """Both sides in the same bins, each as a share of its own finite scores."""
    sides = [scores[np.isfinite(scores)] for scores in (members, nonmembers)]
    edges = bin_edges(np.concatenate(sides))
    shares = [np.histogram(scores, edges)[0] / max(1, scores.size) for scores in sides]
    return Spread(edges, shares[0], shares[1])


def bin_edges(scores: Floats) -> Floats:
    """Equal bins over all finite scores, more for more scores; around the one value where all are the same."""
    low, high = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 1.0)
    least = 1e-6 * max(1.0, abs(low), abs(high))
    if high - low < least:
        low, high = low - least, high + least
    return np.linspace(low, high, min(MOST_BINS, max(8, int(np.sqrt(scores.size)))) + 1)


def as_fine_as_seen(fpr: Floats, tpr: Floats) -> tuple[Floats, Floats]:
    """The points of a ROC curve that move by a 200th, or by a 20th of a decade of the FPR; both ends always.

    A picture shows no more, be its axis linear or logarithmic, and thousands of points make a page slow to open.
    """
    decades = np.log10(np.maximum(fpr, SMALLEST_FPR))
    grid = np.stack([np.round(fpr * LINEAR_STEPS), np.round(tpr * LINEAR_STEPS), np.round(decades * STEPS_A_DECADE)])
    moved = np.any(np.diff(grid, axis=1, prepend=np.nan) != 0, axis=0)
    moved[-1:] = True
    return np.asarray(fpr[moved]), np.asarray(tpr[moved])
