"""What pictures are made of: curves as fine as the eye sees, shares between edges, intervals, panels of studies.

What belongs here: thinning and binning, from the results of a study to its panels (one per setting, a line per
detector, seeds averaged), and what a plot is given. What does not: drawing (plots.py), metrics (statistics/).
Nothing here loads matplotlib.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LINEAR_STEPS = 200
STEPS_A_DECADE = 20
SMALLEST_FPR = 1e-6
MOST_BINS = 40

SIDES = ("members", "non-members")


def bin_scores(members: Floats, nonmembers: Floats) -> dict[str, Floats]:
    """Both sides in the same b bins: b + 1 ``edges``, and of ``members`` and ``nonmembers`` the share of the side's own
    finite scores in each bin."""
    sides = [scores[np.isfinite(scores)] for scores in (members, nonmembers)]
    edges = compute_bin_edges(np.concatenate(sides))
    shares = [np.histogram(scores, edges)[0] / max(1, scores.size) for scores in sides]
    return {"edges": edges, "members": shares[0], "nonmembers": shares[1]}


def compute_bin_edges(scores: Floats) -> Floats:
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


def build_study_panels(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The panels of ``results`` (rows of CONTROL_STUDIES, one study): mean AUROC over seeds at each value of a setting.

    The interval is that of the one training, or from the lowest to the highest of several. Rows without an AUROC are
    left out; values are in their order as numbers where they are numbers. A panel is a ``setting``, its values
    (``places``), and of every ``detector`` a line with the ``auroc`` at each ``place``, an estimate.
    """
    found: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in results:
        if row["auroc"] is not None:
            found[row["setting"], row["detector"]][row["value"]].append(row)
    panels: list[dict[str, Any]] = []
    for setting in dict.fromkeys(setting for setting, _ in found):
        of_setting = {detector: values for (name, detector), values in found.items() if name == setting}
        values = sorted({value for by_value in of_setting.values() for value in by_value}, key=_numeric_sort_key)
        # The blind control last: it is what the others are read against.
        detectors = sorted(of_setting, key=lambda name: (name == "blind_control", name))
        lines = [
            {
                "detector": name,
                "points": [
                    {"place": value, "auroc": _average_over_seeds(of_setting[name].get(value, []))} for value in values
                ],
            }
            for name in detectors
        ]
        panels.append({"setting": setting, "places": values, "lines": lines})
    return panels


def _average_over_seeds(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    aurocs = [float(row["auroc"]) for row in rows]
    mean = float(np.mean(aurocs)) if aurocs else None
    low, high = (min(aurocs), max(aurocs)) if len(aurocs) > 1 else (None, None)
    if len(aurocs) == 1:
        low, high = rows[0]["ci_low"], rows[0]["ci_high"]
    return {"value": mean, "low": low, "high": high, "method": None}


def _numeric_sort_key(value: str) -> tuple[float, str]:
    number = json.loads(value)
    return (float(number), "") if isinstance(number, int | float) else (np.inf, value)
