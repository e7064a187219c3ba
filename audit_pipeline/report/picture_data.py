"""Data of the pictures: thinned ROC curves, histograms, panels of studies. This module does not import matplotlib."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from audit_pipeline.splits.blind_controls import NAME as BLIND_CONTROL

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

LINEAR_STEPS = 200
STEPS_PER_DECADE = 20
SMALLEST_FPR = 1e-6
MAX_BINS = 40

SIDES = ("members", "non-members")


def bin_scores(members: Floats, nonmembers: Floats) -> dict[str, Floats]:
    """Compute the histograms of both sides over the same bins.

    Args:
        members: Scores of the members, of shape (n_members,).
        nonmembers: Scores of the non-members, of shape (n_nonmembers,).

    Returns:
        ``edges`` of shape (n_bins + 1,), and the shares of the ``members`` and ``nonmembers`` per bin, of shape
        (n_bins,). Scores that are not finite are ignored.
    """
    members = members[np.isfinite(members)]
    nonmembers = nonmembers[np.isfinite(nonmembers)]
    edges = compute_bin_edges(np.concatenate([members, nonmembers]))
    return {
        "edges": edges,
        "members": _compute_bin_shares(members, edges),
        "nonmembers": _compute_bin_shares(nonmembers, edges),
    }


def _compute_bin_shares(scores: Floats, edges: Floats) -> Floats:
    counts, _ = np.histogram(scores, edges)
    return np.asarray(counts / max(1, scores.size))


def compute_bin_edges(scores: Floats) -> Floats:
    """Compute the edges of 8 to 40 equal bins over the scores. The number of bins grows with the number of scores.

    If all scores are equal, the bins surround their value.
    """
    low = 0.0
    high = 1.0
    if scores.size:
        low = float(scores.min())
        high = float(scores.max())
    min_width = 1e-6 * max(1.0, abs(low), abs(high))
    if high - low < min_width:
        low -= min_width
        high += min_width
    n_bins = min(MAX_BINS, max(8, int(np.sqrt(scores.size))))
    return np.linspace(low, high, n_bins + 1)


def thin_roc_curve(fpr: Floats, tpr: Floats) -> tuple[Floats, Floats]:
    """Select the points of a ROC curve that a picture can resolve, on a linear or a logarithmic axis.

    A selected point differs from the previous point by a 200th of an axis, or by a 20th of a decade of the
    false-positive rate. Both ends are selected. A page with thousands of points would open slowly.
    """
    decades = np.log10(np.maximum(fpr, SMALLEST_FPR))
    grid = np.stack([np.round(fpr * LINEAR_STEPS), np.round(tpr * LINEAR_STEPS), np.round(decades * STEPS_PER_DECADE)])
    moved = np.any(np.diff(grid, axis=1, prepend=np.nan) != 0, axis=0)
    moved[-1:] = True
    return np.asarray(fpr[moved]), np.asarray(tpr[moved])


def build_study_panels(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Build one panel per setting of a study, with one line per detector.

    Args:
        results: Rows of the table ``control_studies`` of one study. Rows without an AUROC are skipped.

    Returns:
        Panels with the keys ``setting``, ``places`` (the values of the setting in numeric order) and ``lines``. A line
        has a ``detector`` and its ``points``. A point is a ``place`` and the mean ``auroc`` over seeds.
    """
    by_setting: dict[str, dict[str, dict[str, list[Row]]]] = {}
    for row in results:
        if row["auroc"] is not None:
            by_detector = by_setting.setdefault(row["setting"], {})
            by_value = by_detector.setdefault(row["detector"], defaultdict(list))
            by_value[row["value"]].append(row)
    panels = []
    for setting, by_detector in by_setting.items():
        values = sorted(set().union(*by_detector.values()), key=_build_numeric_sort_key)
        # The blind control comes last, because the other detectors are compared with it.
        detectors = sorted(by_detector, key=lambda name: (name == BLIND_CONTROL, name))
        lines = [{"detector": name, "points": _build_points(by_detector[name], values)} for name in detectors]
        panels.append({"setting": setting, "places": values, "lines": lines})
    return panels


def _build_points(rows_by_value: Mapping[str, Sequence[Row]], values: Sequence[str]) -> list[dict[str, Any]]:
    return [{"place": value, "auroc": _average_over_seeds(rows_by_value.get(value, ()))} for value in values]


def _average_over_seeds(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the mean AUROC over seeds, with an interval.

    With one seed, the interval is that of its AUROC. With several seeds, it is the range of their AUROCs.
    """
    aurocs = [float(row["auroc"]) for row in rows]
    if not aurocs:
        return {"value": None, "low": None, "high": None, "method": None}
    mean = float(np.mean(aurocs))
    if len(aurocs) == 1:
        return {"value": mean, "low": rows[0]["ci_low"], "high": rows[0]["ci_high"], "method": None}
    return {"value": mean, "low": min(aurocs), "high": max(aurocs), "method": None}


def _build_numeric_sort_key(value: str) -> tuple[float, str]:
    """Return a key that orders JSON numbers by size and puts other values last."""
    number = json.loads(value)
    if isinstance(number, int | float):
        return float(number), ""
    return np.inf, value
