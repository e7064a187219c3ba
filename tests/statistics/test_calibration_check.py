import numpy as np
import pytest
from scored_texts import build_scored_texts

from audit_pipeline.statistics.thresholds import check_calibration


def by_rule(checks):
    return {(one.rule, one.alpha): one for one in checks}


def test_rates_of_exchangeable_groups_are_near_their_level():
    generator = np.random.default_rng(20240605)
    groups = np.repeat(np.arange(400), generator.integers(1, 6, 400))
    scores = generator.normal(size=400)[groups] + generator.normal(size=len(groups))
    found = by_rule(check_calibration(build_scored_texts(scores, groups=groups)))
    assert len(found) == 6
    assert {(one.splits, one.n_groups) for one in found.values()} == {(200, 400)}
    for alpha in (0.01, 0.05, 0.1):
        # 200 groups calibrate: floor(201 * alpha) / 201 is expected, give or take that there are but 400 groups.
        expected = int(201 * alpha) / 201
        assert found["marginal", alpha].mean_fpr == pytest.approx(expected, abs=0.012)
        assert found["marginal", alpha].reason is None
    assert found["certified", 0.05].mean_fpr < found["marginal", 0.05].mean_fpr
    assert found["certified", 0.05].over_alpha < 0.12 < found["marginal", 0.05].over_alpha
    refused = found["certified", 0.01]
    assert (refused.mean_fpr, refused.standard_error, refused.over_alpha) == (None, None, None)
    assert refused.reason == "400 groups of non-members, 200 of them calibrate; a certified threshold at 0.01 needs 299"


def test_a_split_by_hand():
    # 38 groups of one text, 19 calibrate: the marginal threshold at 5% is the largest of them. The rate is the share of
    # the others above it: 0 where the largest of all calibrates, j/19 where the j largest do not.
    scores = np.arange(38.0)
    (found,) = (
        one
        for one in check_calibration(build_scored_texts(scores, groups=scores), alphas=[0.05])
        if one.rule == "marginal"
    )
    generator = np.random.default_rng(0)
    rates = []
    for _ in range(4000):
        calibrating = generator.permutation(38)[:19]
        rates.append(np.mean(np.setdiff1d(np.arange(38), calibrating) > calibrating.max()))
    assert found.mean_fpr == pytest.approx(np.mean(rates), abs=4 * np.std(rates) / np.sqrt(200))
    assert found.standard_error == pytest.approx(np.std(rates) / np.sqrt(200), rel=0.3)
    # A rate over 5% is one of at least 1/19: the largest of all does not calibrate.
    assert found.over_alpha == pytest.approx(0.5, abs=0.12)


def test_scores_all_alike_flag_nobody_and_the_order_of_rows_is_irrelevant():
    groups = np.arange(120) // 2
    checks = by_rule(check_calibration(build_scored_texts(np.ones(120), groups=groups), splits=20))
    assert checks["marginal", 0.05].mean_fpr == checks["marginal", 0.05].over_alpha == 0
    given = build_scored_texts(np.random.default_rng(1).normal(size=120), groups=groups)
    shuffled = given.take(np.random.default_rng(2).permutation(120))
    assert check_calibration(given, splits=20) == check_calibration(shuffled, splits=20)
    assert check_calibration(given, splits=20) != check_calibration(given, splits=20, seed=1)
