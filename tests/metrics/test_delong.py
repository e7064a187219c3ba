"""DeLong's interval of an AUROC: by its definition, and beside the bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from audit_pipeline.metrics.delong import auroc_with_interval
from audit_pipeline.metrics.intervals import NO_INTERVAL, metric_intervals
from audit_pipeline.metrics.roc import compute_metrics


def twin(scores: list[float], labels: list[int]) -> tuple[float, float]:
    """AUROC and its variance by DeLong's structural components, every pair looked at."""
    members = [score for score, label in zip(scores, labels, strict=True) if label == 1]
    others = [score for score, label in zip(scores, labels, strict=True) if label == 0]
    pairs = np.array([[(a > b) + (a == b) / 2 for b in others] for a in members], dtype=float)
    above, below = pairs.mean(axis=1), pairs.mean(axis=0)
    return float(pairs.mean()), float(above.var(ddof=1) / len(members) + below.var(ddof=1) / len(others))


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 1)), min_size=4, max_size=40))
def test_it_is_what_counting_pairs_gives(rows: list[tuple[int, int]]) -> None:
    scores, labels = [float(score) for score, _ in rows], [label for _, label in rows]
    if not 2 <= sum(labels) <= len(labels) - 2:
        return
    expected, variance = twin(scores, labels)
    auroc, interval = auroc_with_interval(scores, labels)
    assert auroc == pytest.approx(expected)
    assert auroc == pytest.approx(compute_metrics(scores, labels)["auroc"])
    if expected in (0.0, 1.0):
        assert interval == NO_INTERVAL
        return
    deviation = np.sqrt(variance) / (expected * (1 - expected))
    assert interval.low == pytest.approx(expit(logit(expected) - 1.959964 * deviation), abs=1e-6)
    assert interval.high == pytest.approx(expit(logit(expected) + 1.959964 * deviation), abs=1e-6)


def test_it_agrees_with_the_bootstrap_where_both_can_be_had() -> None:
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 1500)
    scores = random.normal(size=1500) + 0.4 * labels
    auroc, interval = auroc_with_interval(scores, labels)
    resampled = metric_intervals(scores, labels, [str(number) for number in range(1500)])["auroc"]
    assert interval.low == pytest.approx(resampled.low, abs=0.002)
    assert interval.high == pytest.approx(resampled.high, abs=0.002)
    assert auroc == compute_metrics(scores, labels)["auroc"]


def test_sides_that_do_not_overlap_have_no_interval() -> None:
    assert auroc_with_interval([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1]) == (1.0, NO_INTERVAL)
    assert auroc_with_interval([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0]) == (0.0, NO_INTERVAL)
    assert auroc_with_interval([1.0, 2.0, 3.0], [0, 1, 0]) == (0.5, NO_INTERVAL)
