"""The declared metrics: names, bounds and labels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.statistics.roc import METRICS, OF_SCORES, compute_metrics


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


def test_every_metric_has_one_name_and_one_label() -> None:
    assert len({metric.label for metric in METRICS.values()}) == len(METRICS)
    assert all(name == metric.name for name, metric in METRICS.items())
    assert set(OF_SCORES) < set(METRICS)
