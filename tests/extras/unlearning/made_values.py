"""Made-up values of texts under models, and their comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from audit_pipeline.extras.unlearning.comparison_rows import (
    MIN_40,
    MIN_K,
    TEXT_MEASURES,
    ComparedValues,
    ComparisonFinding,
    ThresholdBefore,
    compare_texts,
)
from audit_pipeline.tables import ComparedModel

SIDE = 80


def model(seed: int, *, known: float, spoken: float = 0.2) -> Mapping[str, np.ndarray]:
    """Return the values of a model for texts to be forgotten and for as many held-out texts.

    Args:
        seed: The seed of the values.
        known: Difference in the mean log-probability between both sides, in nats.
        spoken: Share of the tokens to be forgotten that the model gives. The share of held-out texts is .2.
    """
    chance = np.random.default_rng(seed)
    forget = np.arange(2 * SIDE) < SIDE
    score = -4 + chance.normal(scale=0.5, size=2 * SIDE) + known * forget
    said = np.where(forget, spoken, 0.2) + chance.uniform(-0.05, 0.05, size=2 * SIDE)
    return {**dict(zip(TEXT_MEASURES, (said, said / 4, score), strict=True)), MIN_40: score, MIN_K: score}


def compare(
    threshold: float | None = -3.2,
    chosen_on: int = 0,
    no_first_choices: str | None = None,
    **models: Mapping[str, np.ndarray],
) -> list[ComparisonFinding]:
    """Compare the texts under models. The first ``chosen_on`` held-out texts are calibration texts."""
    places = np.arange(2 * SIDE)
    roles: tuple[ComparedModel, ...] = ("before", "after", "retrained")
    groups = [f"group {place}" for place in places]
    values = ComparedValues(places < SIDE, groups, {role: models[role] for role in roles if role in models})
    reason = None if threshold is not None else "no thresholds were chosen"
    before = ThresholdBefore(0.2, threshold, "b", "marginal threshold at 5% on b", reason)
    return compare_texts(values, before, (places >= SIDE) & (places < SIDE + chosen_on), no_first_choices)
