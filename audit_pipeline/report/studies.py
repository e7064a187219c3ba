"""From the results of a study to the panels of its picture: one per setting, a line per detector.

What belongs here: putting rows in order and averaging seeds. What does not: drawing (interval_plots.py).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from audit_pipeline.report.picture_data import IntervalRow, StudyPanel


def panels_of(results: Iterable[Mapping[str, Any]]) -> list[StudyPanel]:
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
        values = sorted({value for by_value in of_setting.values() for value in by_value}, key=_order)
        # The blind control last: it is what the others are read against.
        detectors = sorted(of_setting, key=lambda name: (name == "blind_control", name))
        lines = [(name, [_interval(value, of_setting[name].get(value, [])) for value in values]) for name in detectors]
        panels.append(StudyPanel(setting, values, lines))
    return panels


def _interval(value: str, rows: list[Mapping[str, object]]) -> IntervalRow:
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


def _order(value: str) -> tuple[float, str]:
    number = json.loads(value)
    return (float(number), "") if isinstance(number, int | float) else (np.inf, value)
