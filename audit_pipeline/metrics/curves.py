"""Metrics as functions of a ROC curve, for many weightings of the examples at once.

What belongs here: one function a metric. What does not: what a metric is called and which interval it has
(declared.py), and the weights at or above each threshold (metrics.py).

Each function is given the weight of non-members (``false``) and of members (``true``) at or above each threshold, from
+infinity, which calls no text a member, down: [r, t + 1] each, the r weightings in rows, and gives the metric: [r].
Both only rise along the curve, so each limit is met up to one place of it, or from one place on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
OfCurve = Callable[[Floats, Floats], Floats]

SLACK = 1e-12
"""Relative: a rate that lies exactly on its limit is within it, whatever the rounding of limit times weight."""


def auroc(false: Floats, true: Floats) -> Floats:
    """The area under the curve; ties count half."""
    trapezoids = np.einsum("rt,rt->r", np.diff(false, axis=1), true[:, 1:] + true[:, :-1])
    return np.asarray(trapezoids / (2 * false[:, -1] * true[:, -1]))


def largest_tpr(false: Floats, true: Floats, *, fpr: float) -> Floats:
    """The largest TPR at a FPR of at most ``fpr``."""
    within = np.count_nonzero(false <= (fpr * (1 + SLACK) * false[:, -1])[:, None], axis=1) - 1
    return np.asarray(true[np.arange(len(true)), within] / true[:, -1])


def smallest_fpr(false: Floats, true: Floats, *, tpr: float) -> Floats:
    """The smallest FPR at a TPR of at least ``tpr``."""
    enough = np.count_nonzero(true < (tpr * (1 - SLACK) * true[:, -1])[:, None], axis=1)
    return np.asarray(false[np.arange(len(false)), enough] / false[:, -1])
