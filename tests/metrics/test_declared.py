"""The declared metrics: what every entry promises holds for its function."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.metrics.rates import tpr_at_fpr
from audit_pipeline.metrics.roc import AUROC, METRICS, OF_SCORES, RESAMPLED, Metric, compute_metrics


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_values_lie_within_the_bounds_and_read_as_declared(rows: list[tuple[int, bool]]) -> None:
    labels = [int(label) for _, label in rows]
    if len(set(labels)) < 2:
        return
    found = compute_metrics([float(score) for score, _ in rows], labels)
    best, worst = (compute_metrics([sign * float(label) for label in labels], labels) for sign in (1, -1))
    for name, value in found.items():
        metric = METRICS[name]
        assert metric.bounds[0] <= value <= metric.bounds[1]
        low, high = (best, worst) if name == "fpr_at_95_tpr" else (worst, best)
        assert low[name] <= value <= high[name]


def test_a_share_is_the_function_with_exact_bounds() -> None:
    generator = np.random.default_rng(2)
    labels = np.arange(4000) % 2
    scores = generator.normal(size=4000) + labels
    values, groups = compute_metrics(scores, labels), [str(text) for text in range(4000)]
    shares = [metric for metric in METRICS.values() if metric.at_fpr is not None]
    assert len(shares) == 3
    for metric in shares:
        assert metric.at_fpr is not None
        found = tpr_at_fpr(scores, labels, groups, metric.at_fpr)
        assert found.value == values[metric.name]
        assert found.method.startswith(metric.meaning)


def test_every_metric_has_one_name_one_label_and_one_kind_of_interval() -> None:
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())
    assert set(RESAMPLED) < set(OF_SCORES) < set(METRICS)


@pytest.mark.parametrize(("interval", "at_fpr"), [("share", None), ("percentile", 0.05)])
def test_only_a_share_is_read_at_a_fpr(interval: str, at_fpr: float | None) -> None:
    with pytest.raises(ValueError, match="a share has a false-positive rate"):
        Metric("made", "made", "made", AUROC.of_curve, interval, at_fpr=at_fpr)  # type: ignore[arg-type]
