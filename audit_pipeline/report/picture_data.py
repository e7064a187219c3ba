"""What pictures are made of: curves as fine as the eye sees, shares between edges, intervals, panels of studies.

What belongs here: thinning and binning, from the results of a study to its panels (one per setting, a line per
detector, seeds averaged), and what a plot is given. What does not: drawing (plots.py), metrics (metrics/, evidence/).
Nothing here loads matplotlib.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LINEAR_STEPS = 200
STEPS_A_DECADE = 20
SMALLEST_FPR = 1e-6
MOST_BINS = 40

SIDES = ("members", "non-members")


@dataclass(frozen=True, eq=False)
class Spread:
    """How two sides' scores spread: b + 1 edges, and of each side the share of its texts in each of the b bins."""

    edges: Floats
    members: Floats
    nonmembers: Floats


@dataclass(frozen=True)
class RocCurve:
    """A detector's ROC curve: false and true positive rates of equal length, from (0, 0) to (1, 1).

    ``answers``: it is that of the detector that was named beforehand, and its line is the heaviest.
    """

    label: str
    fpr: Floats
    tpr: Floats
    auroc: float | None
    answers: bool = False


@dataclass(frozen=True)
class IntervalRow:
    """A value with its 95% interval; any of the three may be unknown."""

    label: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ScorePanel:
    """One detector's scores of both sides."""

    label: str
    spread: Spread


@dataclass(frozen=True)
class StudyPanel:
    """AUROC over the values of one setting, a line per detector; ``lines`` has one interval per value for each."""

    setting: str
    values: Sequence[str]
    lines: Sequence[tuple[str, Sequence[IntervalRow]]]


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


def thin_roc_curve(fpr: Floats, tpr: Floats) -> tuple[Floats, Floats]:
    """The points of a ROC curve that move by a 200th, or by a 20th of a decade of the FPR; both ends always.

    A picture shows no more, be its axis linear or logarithmic, and thousands of points make a page slow to open.
    """
    decades = np.log10(np.maximum(fpr, SMALLEST_FPR))
    grid = np.stack([np.round(fpr * LINEAR_STEPS), np.round(tpr * LINEAR_STEPS), np.round(decades * STEPS_A_DECADE)])
    moved = np.any(np.diff(grid, axis=1, prepend=np.nan) != 0, axis=0)
    moved[-1:] = True
    return np.asarray(fpr[moved]), np.asarray(tpr[moved])


def build_study_panels(results: Iterable[Mapping[str, Any]]) -> list[StudyPanel]:
    """The panels of ``results`` (rows of CONTROL_STUDIES, one study): mean AUROC over seeds at each value of a setting.

    The interval is that of the one training, or from the lowest to the highest of several. Rows without an AUROC are
    left out; values stand in their order as numbers where they are numbers.
    """
    found: dict[tuple[str, str], dict[str, list[Mapping[str, object]]]] = defaultdict(lambda: defaultdict(list))
    for row in results:
        if row["auroc"] is not None:
            found[row["setting"], row["detector"]][row["value"]].append(row)
    panels = []
    for setting in dict.fromkeys(setting for setting, _ in found):
        of_setting = {detector: values for (name, detector), values in found.items() if name == setting}
        values = sorted({value for by_value in of_setting.values() for value in by_value}, key=_numeric_sort_key)
        # The blind control last: it is what the others are read against.
        detectors = sorted(of_setting, key=lambda name: (name == "blind_control", name))
        lines = [
            (name, [_average_over_seeds(value, of_setting[name].get(value, [])) for value in values])
            for name in detectors
        ]
        panels.append(StudyPanel(setting, values, lines))
    return panels


def _average_over_seeds(value: str, rows: list[Mapping[str, object]]) -> IntervalRow:
    aurocs = [float(str(row["auroc"])) for row in rows]
    if not aurocs:
        return IntervalRow(value, None, None, None)
    if len(aurocs) > 1:
        return IntervalRow(value, float(np.mean(aurocs)), min(aurocs), max(aurocs))
    low, high = rows[0]["ci_low"], rows[0]["ci_high"]
    return IntervalRow(
        value,
        aurocs[0],
        float(str(low)) if low is not None else None,
        float(str(high)) if high is not None else None,
    )


def _numeric_sort_key(value: str) -> tuple[float, str]:
    number = json.loads(value)
    return (float(number), "") if isinstance(number, int | float) else (np.inf, value)
