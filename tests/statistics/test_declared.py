"""The declared metrics: what every entry promises holds for its function."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.statistics.intervals import GroupedSides
from audit_pipeline.statistics.rates import measure_share
from audit_pipeline.statistics.roc import METRICS, OF_SCORES, compute_metrics, roc_points


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
    curve, sides = roc_points(scores, labels), GroupedSides(groups, labels)
    shares = [metric for metric in METRICS.values() if metric.is_share]
    assert len(shares) == 4
    for metric in shares:
        found = measure_share(metric, curve, sides)
        assert found.value == values[metric.name]
        assert found.method.startswith(metric.meaning)


def test_every_metric_has_one_name_and_one_label() -> None:
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())
    assert set(OF_SCORES) < set(METRICS)
