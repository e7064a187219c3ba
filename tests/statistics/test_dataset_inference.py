"""Dataset inference: findings, false findings, omitted features and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from sklearn.linear_model import RidgeCV

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.dataset_inference import (
    MIN_GROUPS,
    ComparedTexts,
    DatasetInference,
    build_feature_matrix,
    combine_p_values,
    run_dataset_inference,
)
from audit_pipeline.statistics.findings import describe_method

Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_], list[str]]
NAMES = ["loss", "min_k", "zlib", "noise"]


def made(seed: int, *, groups: int = 24, windows: int = 3, effect: float = 0.0, own: float = 1.0) -> Data:
    """Return random features of ``groups`` per side with ``windows`` texts each. Texts of a group differ by ``own``."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(2 * groups), windows)
    values = generator.standard_normal((2 * groups, 4))[group] + own * generator.standard_normal((len(group), 4))
    held_out = group >= groups
    values[~held_out, :2] += effect
    return values, held_out, [f"book {one}" for one in group]


def infer(data: Data, **options: Any) -> DatasetInference:
    values, held_out, groups = data
    given = {"design": "exchangeable", "claim_level": "statistical evidence", "splits": 3, **options}
    return run_dataset_inference(ComparedTexts(values, given.pop("names", NAMES), held_out, groups), **given)


def test_a_difference_is_found_and_described() -> None:
    done = infer(made(1, effect=2.0))
    assert (done.status, done.reason) == ("ok", None)
    assert done.p_value is not None
    assert done.statistic is not None
    assert done.p_value < 1e-4
    assert done.statistic > 4
    assert (done.n, done.n_held_out) == (72, 72)
    assert len(done.split_p_values) == 3
    assert done.p_value == pytest.approx(combine_p_values(done.split_p_values))
    # Halves of 12 groups a side, at 2.5%: 0.5 + (1.960 + 0.842) * sqrt(25 / (12 * 144)).
    assert done.detectable_auroc == pytest.approx(0.837, abs=5e-4)
    assert "4 features" in describe_method(done)
    assert "twice the median" in describe_method(done)


def test_one_split_equals_its_twin() -> None:
    """The test computes halves, clipping, means, fit and test of one split text by text."""
    values, held_out, groups = made(5, groups=MIN_GROUPS, windows=2, effect=0.8)
    done = infer((values, held_out, groups), splits=1, seed=7)
    generator = np.random.default_rng([7, 0])
    names = sorted(set(groups))
    sides = [[name for name in names if held_out[groups.index(name)] == side] for side in (False, True)]
    fitted = {side[place] for side in sides for place in generator.permutation(len(side))[: len(side) // 2]}
    texts = np.array([group in fitted for group in groups])
    low, high = np.percentile(values[texts], [2.5, 97.5], axis=0)
    clipped = np.minimum(np.maximum(values, low), high)
    scaled = (clipped - clipped[texts].mean(0)) / clipped[texts].std(0)
    means = {
        name: np.mean([row for row, group in zip(scaled, groups, strict=True) if group == name], 0) for name in names
    }
    label = {name: float(not held_out[groups.index(name)]) for name in names}
    training = sorted(fitted)
    model = RidgeCV(alphas=np.logspace(-1, 5, 13)).fit(
        [means[one] for one in training], [label[one] for one in training]
    )
    output = {name: float(model.predict([means[name]])[0]) for name in names if name not in fitted}
    welch = stats.ttest_ind(
        [output[name] for name in output if label[name]],
        [output[name] for name in output if not label[name]],
        equal_var=False,
        alternative="greater",
    )
    assert len(fitted) == MIN_GROUPS
    assert done.split_p_values[0] == pytest.approx(welch.pvalue)
    assert done.statistic == pytest.approx(welch.statistic)


def test_lower_scores_are_the_opposite_direction_and_no_finding() -> None:
    """With the opposite sign, the p-value of a clear difference is 1, and the result has the direction."""
    values, held_out, groups = made(1, effect=2.0)
    found, turned = infer((values, held_out, groups)), infer((-values, held_out, groups))
    assert (found.direction, turned.direction) == ("training", "opposite")
    assert turned.split_p_values == (1.0, 1.0, 1.0)
    assert (turned.p_value, turned.statistic) == (1.0, pytest.approx(-(found.statistic or 0)))
    assert describe_method(found).endswith("; 3 of 3 fitted halves run in the direction of training")
    assert "; 0 of 3 fitted halves run in the direction of training (p = " in describe_method(turned)
    assert "regardless of direction)" in describe_method(turned)
    assert infer((values, ~held_out, groups)).direction == "opposite", "the sides exchanged are the sign exchanged"


@pytest.mark.parametrize("effect", [-0.6, -0.2, 0.0, 0.2])
def test_the_direction_is_decided_on_the_fitted_half_alone(effect: float) -> None:
    values, held_out, groups = made(11, groups=20, windows=1, effect=effect)
    for seed in range(12):
        p_value = infer((values, held_out, groups), splits=1, seed=seed).split_p_values[0]
        generator = np.random.default_rng([seed, 0])
        names = np.array(groups)
        sides = [sorted(names[held_out == side]) for side in (False, True)]
        fitted = [side[place] for side in sides for place in generator.permutation(len(side))[: len(side) // 2]]
        half = np.isin(names, fitted)
        low, high = np.percentile(values[half], [2.5, 97.5], axis=0)
        clipped = np.clip(values, low, high)
        scaled = (clipped - clipped[half].mean(0)) / clipped[half].std(0)
        # By name, as the groups are fitted.
        order = [place for place in np.argsort(names) if half[place]]
        model = RidgeCV(alphas=np.logspace(-1, 5, 13)).fit(scaled[order], (~held_out[order]).astype(float))
        audited, held_out_half = scaled[half & ~held_out], scaled[half & held_out]
        direction = (np.abs(model.coef_) * (audited.mean(0) - held_out_half.mean(0))).sum()
        assert (p_value < 1) == (direction > 0), (effect, seed)


@pytest.mark.parametrize("n", [24, pytest.param(150, marks=pytest.mark.slow)])
def test_the_level_holds_and_differences_of_the_other_sign_do_not_count(n: int) -> None:
    """There are ``n`` random data sets without an effect, and with some or all detectors against training."""

    def directions(effect: float, *, every: bool = False) -> list[str | None]:
        found = []
        for seed in range(n):
            values, held_out, groups = made(seed, groups=20, windows=1, effect=effect)
            values[~held_out, 2:] += effect if every else 0.0
            done = infer((values, held_out, groups))
            assert (done.direction == "training") == (done.p_value is not None and done.p_value <= 0.05)
            found.append(done.direction)
        return found

    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / n)
    without, some, every = directions(0.0), directions(-1.2), directions(-1.2, every=True)
    assert without.count("training") / n <= limit
    assert without.count("opposite") / n <= limit
    assert some.count("training") / n <= limit
    assert every.count("training") == 0
    assert every.count("opposite") > 0.8 * n


def test_features_on_which_known_members_score_lower_are_omitted() -> None:
    """Audited texts score higher and known members score lower, so the scores run against training."""
    values, held_out, groups = made(1, effect=2.0)
    generator = np.random.default_rng(3)
    known = generator.standard_normal((60, 4)), [f"known {one // 2}" for one in range(60)]
    assert infer((values, held_out, groups), known_members=known).p_value == pytest.approx(
        infer((values, held_out, groups)).p_value
    ), "members that score like held-out texts say nothing"
    lower = known[0] - 5, known[1]
    done = infer((values, held_out, groups), known_members=lower)
    assert (done.p_value, done.direction) == (1.0, "opposite")
    assert "up to 4 feature(s) omitted because known members have lower scores" in describe_method(done)
    # One feature of four: the others are tested as they would be without it.
    one = known[0] - np.array([5.0, 0.0, 0.0, 0.0]), known[1]
    without = infer((values[:, 1:], held_out, groups), names=NAMES[1:])
    assert infer((values, held_out, groups), known_members=one).p_value == pytest.approx(without.p_value)
    lacking = np.full((60, 4), np.nan), known[1]
    assert infer((values, held_out, groups), known_members=lacking).direction == "training"


def test_a_feature_and_its_negative_say_nothing_by_rounding() -> None:
    values, held_out, groups = made(1, effect=2.0)
    done = infer((np.column_stack([values[:, 0], -values[:, 0]]), held_out, groups), names=["ppl", "less ppl"])
    assert done.p_value == 1.0
    assert done.direction != "training"


def test_sides_without_spread_have_the_p_value_of_a_permutation_test(recwarn: pytest.WarningsRecorder) -> None:
    values, held_out, groups = made(1)
    done = infer((np.where(held_out, 0.0, 1.0)[:, None].repeat(4, axis=1), held_out, groups))
    assert done.statistic is None
    assert done.split_p_values == (1 / math.comb(24, 12),) * 3, "12 groups per side are tested"
    far = infer((np.where(held_out, 0.0, 1e3)[:, None] + values, held_out, groups))
    assert min(far.split_p_values) >= 1 / math.comb(24, 12)
    assert not recwarn.list


def test_no_p_value_is_zero_with_thousands_of_groups() -> None:
    """1 / C(1400, 700) is below 1e-418, which float64 cannot represent."""
    values, held_out, groups = made(1, groups=1400, windows=1)
    sides = np.where(held_out, 0.0, 1.0)[:, None]
    for found in (infer((sides.repeat(4, axis=1), held_out, groups)), infer((values + 1e3 * sides, held_out, groups))):
        assert found.split_p_values == (1e-300,) * 3


def test_windows_of_one_book_do_not_count_as_independent() -> None:
    """Each book has thirty nearly equal windows, without an effect. A test over texts would nearly always find one."""
    p_values = [infer(made(seed, groups=20, windows=30, own=0.05), splits=1).p_value for seed in range(100)]
    # One split by twice the median is twice its p-value.
    assert np.mean([one / 2 <= 0.05 for one in p_values if one is not None]) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_neither_order_nor_scale_of_the_texts_matters() -> None:
    values, held_out, groups = made(3, effect=1.0)
    expected = infer((values, held_out, groups))
    order = np.random.default_rng(0).permutation(len(groups))
    shuffled = infer((values[order], held_out[order], [groups[place] for place in order]))
    assert shuffled.split_p_values == pytest.approx(expected.split_p_values)
    scaled = infer((values * [1, 3, 0.01, 100] + [5, 0, 0, -9], held_out, groups))
    assert scaled.split_p_values == pytest.approx(expected.split_p_values)
    assert infer((values, held_out, groups), seed=1).split_p_values != expected.split_p_values


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_feature_that_is_missing_for_some_text_is_omitted_and_named(missing: float) -> None:
    values, held_out, groups = made(4, effect=1.0)
    holed = values.copy()
    holed[[3, 90], 2] = missing
    found = infer((holed, held_out, groups))
    assert found.omitted_features == {"zlib": 2}
    assert "3 features" in describe_method(found)
    assert describe_method(found).endswith("; omitted: zlib (missing for 2 of 144 texts)")
    without = infer((np.delete(values, 2, axis=1), held_out, groups), names=["loss", "min_k", "noise"])
    assert found.split_p_values == without.split_p_values
    assert infer((values, held_out, groups)).split_p_values != without.split_p_values


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"design": "temporal"}, "design is 'temporal'"),
        ({"design": "unlabelled"}, "design is 'unlabelled'"),
        ({"groups": 19}, "the audited texts have 19 groups, but the test requires 20"),
        ({"no_held_out": True}, "the held-out texts have 0 groups, but the test requires 20"),
        ({"all_missing": True}, "every feature is missing for some text"),
    ],
)
def test_refused_tests_have_a_reason_and_no_number(change: dict[str, Any], reason: str) -> None:
    values, held_out, groups = made(6, groups=change.get("groups", 20), effect=5.0)
    if "no_held_out" in change:
        held_out = np.zeros_like(held_out)
    if "all_missing" in change:
        values = np.full_like(values, math.nan)
    done = infer((values, held_out, groups), design=change.get("design", "exchangeable"))
    assert (done.status, done.p_value, done.statistic, done.direction) == ("refused", None, None, None)
    assert done.split_p_values == ()
    assert done.reason is not None
    assert reason in done.reason


def test_groups_of_both_sides_stay_together() -> None:
    """Every book has similar texts on both sides. Otherwise similar halves would leak."""
    generator = np.random.default_rng(8)
    group = np.repeat(np.arange(40), 2)
    values = 5 * generator.standard_normal((40, 4))[group] + generator.standard_normal((80, 4))
    held_out = np.tile([True, False], 40)
    data = (values, held_out, [str(one) for one in group])
    done = infer(data)
    assert done.status == "ok"
    assert min(done.split_p_values) > 0.05
    assert infer(data, design="randomised").split_p_values == done.split_p_values


def test_constant_features_say_nothing() -> None:
    values, held_out, groups = made(9)
    done = infer((np.ones_like(values), held_out, groups))
    assert (done.p_value, done.statistic, done.direction) == (1.0, 0.0, "none")


def test_a_long_table_of_scores_becomes_a_matrix() -> None:
    found = build_feature_matrix(["b", "a", "b", "c"], ["loss", "loss", "zlib", "zlib"], [1.0, 2.0, 3.0, None])
    assert (found.example_ids, found.names) == (("a", "b", "c"), ("loss", "zlib"))
    np.testing.assert_array_equal(found.values, [[2.0, math.nan], [1.0, 3.0], [math.nan, math.nan]])
    assert build_feature_matrix([], [], []).values.shape == (0, 0)
    with pytest.raises(DataError, match="two scores"):
        build_feature_matrix(["a", "a"], ["loss", "loss"], [1.0, 1.0])
