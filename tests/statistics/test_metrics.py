import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.roc import (
    METRICS,
    OF_SCORES,
    compute_metrics,
    compute_roc_points,
    find_index_at_tpr,
    find_threshold_at_fpr,
)


@st.composite
def cases(draw, max_size=30):
    """Draw scores with many ties, and labels of both classes."""
    n = draw(st.integers(2, max_size))
    score = st.integers(-6, 6).map(float) | st.floats(-1e6, 1e6)
    scores = draw(st.lists(score, min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n).filter(lambda drawn: 0 < sum(drawn) < len(drawn)))
    return scores, labels


def test_by_hand():
    #           member  non  member  non+member tied  non
    scores = [5.0, 4.0, 3.0, 2.0, 2.0, 1.0]
    labels = [1, 0, 1, 0, 1, 0]
    # pairs won by members: 5>4, 5>2, 5>1; 3>2, 3>1; 2=2 (half), 2>1: 6.5 of 9
    found = compute_metrics(scores, labels)
    tprs = {"tpr_at_5_fpr": 1 / 3, "tpr_at_1_fpr": 1 / 3, "tpr_at_01_fpr": 1 / 3}
    assert found == {"auroc": pytest.approx(6.5 / 9), **tprs, "fpr_at_95_tpr": 2 / 3}
    assert list(found) == list(OF_SCORES)


def test_perfect_reversed_and_constant_scores():
    labels = [0, 0, 1, 1, 1]
    for scores, auroc, tpr, fpr in (
        ([1, 2, 3, 4, 5], 1.0, 1.0, 0.0),
        ([5, 4, 3, 2, 1], 0.0, 0.0, 1.0),
        ([7, 7, 7, 7, 7], 0.5, 0.0, 1.0),
    ):
        assert list(compute_metrics(scores, labels).values()) == [auroc, tpr, tpr, tpr, fpr]


@pytest.mark.parametrize("n", [20, 40, 100, 140, 260, 1000])
def test_rates_exactly_on_their_limits_are_within(n):
    # The twentieth part of the non-members stands above every member, the twentieth part of the members below all.
    part = n // 20
    scores = [3.0] * part + [1.0] * (n - part) + [2.0] * (n - part) + [0.0] * part
    labels = [0] * n + [1] * n
    found = compute_metrics(scores, labels)
    assert found["tpr_at_5_fpr"] == (n - part) / n
    assert found["fpr_at_95_tpr"] == part / n
    one_more = compute_metrics([*scores, 3.0], [*labels, 0])
    assert one_more["tpr_at_5_fpr"] == 0.0


@pytest.mark.parametrize(("name", "per"), [("tpr_at_5_fpr", 20), ("tpr_at_1_fpr", 100), ("tpr_at_01_fpr", 1000)])
def test_each_limit_lets_its_own_share_of_nonmembers_through(name, per):
    # Three non-members above the members, of exactly as many as the limit lets three through of.
    scores = [3.0] * 3 + [1.0] * (3 * per - 3) + [2.0]
    labels = [0] * (3 * per) + [1]
    assert compute_metrics(scores, labels)[name] == 1.0
    assert compute_metrics([*scores[1:], 3.0], [*labels[1:], 0])[name] == 1.0
    assert compute_metrics([*scores, 3.0], [*labels, 0])[name] == 0.0


def test_the_threshold_at_a_fpr_is_the_lowest_that_keeps_it():
    scores, labels = [5.0, 4.0, 3.0, 2.0, 1.0], [1, 0, 1, 0, 0]
    points = compute_roc_points(scores, labels)
    assert [find_threshold_at_fpr(points, limit) for limit in (0.0, 0.3, 1 / 3, 0.7, 1.0)] == [5.0, 5.0, 3.0, 2.0, 1.0]
    assert find_threshold_at_fpr(compute_roc_points([1.0, 1.0], [0, 1]), 0.05) == math.inf


@given(cases())
def test_the_threshold_gives_the_tpr(case):
    scores, labels = case
    points = compute_roc_points(scores, labels)
    limits = {name: metric.at_fpr for name, metric in METRICS.items() if metric.at_fpr is not None}
    assert len(limits) == 3
    for name, limit in limits.items():
        called = np.array(scores) >= find_threshold_at_fpr(points, limit)
        assert called[np.array(labels) == 1].mean() == pytest.approx(compute_metrics(scores, labels)[name])


def test_with_fewer_than_twenty_nonmembers_no_false_positive_is_allowed():
    assert compute_metrics([3, 4, 1], [1, 0, 0])["tpr_at_5_fpr"] == 0.0
    assert compute_metrics([4, 3, 1], [1, 0, 0])["tpr_at_5_fpr"] == 1.0


@given(cases())
def test_equals_the_twin(case):

    def twin(scores, labels):
        """Compute the metrics by enumerating pairs and thresholds in whole numbers."""
        rows = list(zip(scores, labels, strict=True))
        members, others = ([score for score, label in rows if label == side] for side in (1, 0))
        n_members, n_others = len(members), len(others)
        wins = sum(2 * (s > t) + (s == t) for s in members for t in others)
        points = [(sum(s >= limit for s in members), sum(s >= limit for s in others)) for limit in [math.inf, *scores]]
        return {
            "auroc": wins / (2 * n_members * n_others),
            "tpr_at_5_fpr": max(t for t, f in points if 100 * f <= 5 * n_others) / n_members,
            "tpr_at_1_fpr": max(t for t, f in points if 100 * f <= n_others) / n_members,
            "tpr_at_01_fpr": max(t for t, f in points if 1000 * f <= n_others) / n_members,
            "fpr_at_95_tpr": min(f for t, f in points if 100 * t >= 95 * n_members) / n_others,
        }

    scores, labels = case
    assert compute_metrics(scores, labels) == pytest.approx(twin(scores, labels), rel=1e-12)
    assert compute_metrics(scores, labels)["auroc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


@given(cases(), st.randoms())
def test_row_order_does_not_matter(case, random):
    scores, labels = case
    order = list(range(len(scores)))
    random.shuffle(order)
    shuffled = ([values[index] for index in order] for values in (scores, labels))
    assert compute_metrics(*shuffled) == compute_metrics(scores, labels)


@given(cases())
def test_a_strictly_monotone_change_of_scores_changes_nothing(case):
    scores, labels = case
    ranks = {value: float(index) ** 3 - 50 for index, value in enumerate(sorted(set(scores)))}
    assert compute_metrics([ranks[score] for score in scores], labels) == compute_metrics(scores, labels)


@given(cases())
def test_negated_scores_and_swapped_classes_mirror_the_auroc(case):
    scores, labels = case
    auroc = compute_metrics(scores, labels)["auroc"]
    assert compute_metrics([-score for score in scores], labels)["auroc"] == pytest.approx(1 - auroc, abs=1e-12)
    assert compute_metrics(scores, [1 - label for label in labels])["auroc"] == pytest.approx(1 - auroc, abs=1e-12)


@given(cases())
def test_the_two_limits_agree_under_mirroring(case):
    # FPR at 95% TPR is one minus the TNR; swapping classes and signs turns it into a TPR at 5% FPR.
    scores, labels = case
    mirrored = compute_metrics([-value for value in scores], [1 - value for value in labels])
    assert compute_metrics(scores, labels)["fpr_at_95_tpr"] == pytest.approx(1 - mirrored["tpr_at_5_fpr"], abs=1e-12)


@given(cases())
def test_the_threshold_of_a_tpr_is_the_highest_that_reaches_it(case):
    scores, labels = case
    members = np.array([score for score, label in zip(scores, labels, strict=True) if label == 1])
    reached = [limit for limit in scores if (members >= limit).mean() >= 0.95 - 1e-9]
    curve = compute_roc_points(scores, labels)
    assert curve.threshold[find_index_at_tpr(curve, 0.95)] == max(reached)


@given(cases())
def test_roc_points_go_up_from_corner_to_corner(case):
    scores, labels = case
    points = compute_roc_points(scores, labels)
    assert (points.fpr[0], points.tpr[0], points.threshold[0]) == (0, 0, math.inf)
    assert (points.fpr[-1], points.tpr[-1]) == (1, 1)
    assert len(points.fpr) == len(set(scores)) + 1
    for fpr, tpr, threshold in zip(points.fpr, points.tpr, points.threshold, strict=True):
        called = np.array(scores) >= threshold
        assert tpr == pytest.approx(called[np.array(labels) == 1].mean())
        assert fpr == pytest.approx(called[np.array(labels) == 0].mean())
    assert np.trapezoid(points.tpr, points.fpr) == pytest.approx(compute_metrics(scores, labels)["auroc"])


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        ([1.0, 2.0], [1, 1], "there are no non-members"),
        ([1.0, 2.0], [0, 0], "there are no members"),
        ([], [], "there are no members and no non-members"),
        ([1.0, math.nan], [0, 1], "not a number"),
        ([1.0, 2.0], [0, 2], "neither 1"),
        ([1.0], [0, 1], "there must be one score per label"),
    ],
)
def test_undefined_metrics_are_refused(scores, labels, message):
    with pytest.raises(DataError, match=message):
        compute_metrics(scores, labels)
