"""One list of items that are clean for all of several models, with a bound on the share of contaminated items in it.

An item is contaminated for a model if the model has read it. It is clean for all models if no model has read it. The
null hypothesis of an item is that at least one model has read it. A list of items for which this hypothesis is rejected
is a list of clean items.

For each model k, the item's score s_ik is ranked among the scores C_k of n_k calibration items. These are items that
the model is known to have read. A low rank is evidence that the model has not read the item:

    p_ik = (1 + #{c in C_k: c <= s_ik}) / (n_k + 1),        p_i = max over k of p_ik

If model k has read the item, the item is exchangeable with the calibration items of that model, so P(p_ik <= a) <= a.
As p_i >= p_ik, P(p_i <= a) <= a holds too, however the models depend on each other. The largest p-value is the max-p
baseline of Liu et al. 2026 (arXiv 2605.21543), whose own method lists more items under further assumptions.

The q-values of Benjamini and Hochberg over all tested items select the list. The expected share of contaminated items
in the list is at most ``rate`` (the global contamination rate of Liu et al.). The condition is that the p-values of
contaminated items depend positively on each other, as they do for one model (Bates et al. 2023). The list of Benjamini
and Yekutieli is shorter and needs no such condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.conformal import (
    compute_benjamini_yekutieli_factor,
    compute_conformal_p_values,
    compute_q_values,
    count_held_out_needed,
)
from audit_pipeline.statistics.roc import Bools, Floats

_ROUNDING_ERROR = 1e-9
"""P- and q-values are ratios of counts, so two of them that differ by less are equal."""


@dataclass(frozen=True, eq=False)
class JointCleanList:
    """The p-values of all items, and the two lists. All arrays have the shape (n_items,).

    Attributes:
        model_p_values: The p-values by model. NaN if the model has no score of the item.
        p_value: The largest p-value over the models. NaN if a model has no score of the item. Such items are not
            tested.
        q_bh: The q-values of Benjamini and Hochberg over the tested items. NaN for other items.
        q_by: The q-values of Benjamini and Yekutieli over the tested items. NaN for other items.
        clean_bh: True if the item is listed by its ``q_bh``.
        clean_by: True if the item is listed by its ``q_by``.
        n_tested: Number of tested items.
        smallest_p_value: The smallest p-value that an item can have.
        min_listed_bh: Minimum number of items in a list by ``q_bh`` that is not empty.
        min_listed_by: Minimum number of items in a list by ``q_by`` that is not empty. If it exceeds ``n_tested``, that
            list is always empty.
    """

    model_p_values: Mapping[str, Floats]
    p_value: Floats
    q_bh: Floats
    q_by: Floats
    clean_bh: Bools
    clean_by: Bools
    n_tested: int
    smallest_p_value: float
    min_listed_bh: int
    min_listed_by: int


def compute_joint_clean_list(
    scores: Mapping[str, Floats], calibration: Mapping[str, Floats], rate: float
) -> JointCleanList:
    """Compute the list of items that are clean for all models. See the module's equations.

    Args:
        scores: The scores of the items by model, each of shape (n_items,). Higher means more likely read. NaN if the
            model has no score of the item.
        calibration: The scores of the calibration items by model, with one item per group.
        rate: The contamination rate: maximum expected share of contaminated items in the list.

    Raises:
        DataError: If no item has a score by every model, or if a model has too few calibration items to list an item.
    """
    _require_enough_calibration(calibration, rate)
    model_p_values: dict[str, Floats] = {}
    for model, values in scores.items():
        is_scored = ~np.isnan(values)
        p_values = np.full(len(values), np.nan)
        # The negative scores turn "at most" into the "at least" of compute_conformal_p_values.
        p_values[is_scored] = compute_conformal_p_values(-values[is_scored], -calibration[model])
        model_p_values[model] = p_values
    p_value = np.stack(list(model_p_values.values())).max(axis=0)
    is_tested = ~np.isnan(p_value)
    n_tested = int(is_tested.sum())
    if not n_tested:
        raise DataError("no tested item has a score by every model. Audit all models on the same items.")
    q_bh = np.full(len(p_value), np.nan)
    q_by = q_bh.copy()
    q_bh[is_tested] = compute_q_values(p_value[is_tested], "bh")
    q_by[is_tested] = compute_q_values(p_value[is_tested], "by")
    smallest_p_value = max(1 / (len(values) + 1) for values in calibration.values())
    min_listed = n_tested * smallest_p_value / rate
    return JointCleanList(
        model_p_values=model_p_values,
        p_value=p_value,
        q_bh=q_bh,
        q_by=q_by,
        # A comparison with NaN is False.
        clean_bh=q_bh <= rate + _ROUNDING_ERROR,
        clean_by=q_by <= rate + _ROUNDING_ERROR,
        n_tested=n_tested,
        smallest_p_value=smallest_p_value,
        min_listed_bh=math.ceil(min_listed - _ROUNDING_ERROR),
        min_listed_by=math.ceil(min_listed * compute_benjamini_yekutieli_factor(n_tested) - _ROUNDING_ERROR),
    )


def _require_enough_calibration(calibration: Mapping[str, Floats], rate: float) -> None:
    """Raise DataError if the smallest possible p-value of a model exceeds ``rate``.

    Even if all tested items have this p-value, their q-values equal it, so no item could be listed.
    """
    required = count_held_out_needed(1, 1, rate)
    problems: list[str] = []
    for model, values in calibration.items():
        if len(values) < required:
            problems.append(f"{model} has {len(values):,} ({required - len(values):,} are missing)")
    if problems:
        raise DataError(
            f"a contamination rate of {rate:g} requires at least {required:,} calibration items per model, one per "
            f"group: {'; '.join(problems)}. Name more items that the model has read, or raise the rate."
        )
