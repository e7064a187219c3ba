"""One list of items that are clean for all models: p-values, the two lists, refusals and the contamination rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.statistics.joint_clean_list import JointCleanList, compute_joint_clean_list
from audit_pipeline.statistics.roc import Bools, Floats

NAN = float("nan")


def arrays_of(**values: Sequence[float]) -> dict[str, Floats]:
    return {name: np.array(one, dtype=np.float64) for name, one in values.items()}


def test_p_values_and_lists_by_hand() -> None:
    """Compare two models with four and three calibration items. The last of five items has no score by b."""
    scores = arrays_of(a=[0.0, 2.0, 9.0, 0.5, 0.0], b=[0.0, 0.0, 0.0, 1.0, NAN])
    calibration = arrays_of(a=[1, 2, 3, 4], b=[1, 2, 3])
    found = compute_joint_clean_list(scores, calibration, rate=0.5)
    # Ties count against the item: two calibration items of a are at most 2, and one of b is at most 1.
    assert found.model_p_values["a"] == pytest.approx([1 / 5, 3 / 5, 1, 1 / 5, 1 / 5])
    assert found.model_p_values["b"] == pytest.approx([1 / 4, 1 / 4, 1 / 4, 2 / 4, NAN], nan_ok=True)
    assert found.p_value == pytest.approx([1 / 4, 3 / 5, 1, 2 / 4, NAN], nan_ok=True)
    # The sorted p-values are 1/4, 2/4, 3/5 and 1. Times 4/1, 4/2, 4/3 and 4/4: 1, 1, 4/5 and 1. The minimum from the
    # right is 4/5, 4/5, 4/5 and 1.
    assert found.q_bh == pytest.approx([4 / 5, 4 / 5, 1, 4 / 5, NAN], nan_ok=True)
    # 1 + 1/2 + 1/3 + 1/4 is 25/12, so all q-values of Benjamini and Yekutieli are 1.
    assert found.q_by == pytest.approx([1, 1, 1, 1, NAN], nan_ok=True)
    assert not found.clean_bh.any()
    assert (found.n_tested, found.smallest_p_value) == (4, 1 / 4)
    # At p = 1/4, two of four items have q = 1/2. By Benjamini and Yekutieli, 4 * 1/4 / (1/2) * 25/12 = 4.2 are needed.
    assert (found.min_listed_bh, found.min_listed_by) == (2, 5)
    listed = compute_joint_clean_list(scores, calibration, rate=0.8)
    assert listed.clean_bh.tolist() == [True, True, False, True, False]
    assert not listed.clean_by.any()


def test_an_item_with_one_high_score_is_not_listed() -> None:
    scores = arrays_of(a=[0.0] * 20, b=[0.0] * 19 + [1.0])
    calibration = arrays_of(a=np.arange(1, 1000), b=np.arange(1, 1000))
    found = compute_joint_clean_list(scores, calibration, rate=0.0015)
    assert found.clean_bh.tolist() == [True] * 19 + [False]


@pytest.mark.parametrize(("calibration", "rate"), [(19, 0.05), (9, 0.1), (99, 0.01)])
def test_the_smallest_calibration_set_lists_items_at_the_border(calibration: int, rate: float) -> None:
    known = np.arange(1.0, calibration + 1)
    scores = arrays_of(a=[0.0] * 7)
    found = compute_joint_clean_list(scores, {"a": known}, rate)
    assert found.clean_bh.all()
    assert found.min_listed_bh == 7
    with pytest.raises(DataError, match=rf"at least {calibration} calibration items .*: a has .* \(1 are missing\)"):
        compute_joint_clean_list(scores, {"a": known[1:]}, rate)


def test_models_without_enough_calibration_items_are_named_with_the_missing_number() -> None:
    scores = arrays_of(a=[0.0], b=[0.0], c=[0.0])
    calibration = arrays_of(a=np.arange(19), b=np.arange(7), c=[])
    with pytest.raises(DataError, match=r"b has 7 \(12 are missing\); c has 0 \(19 are missing\)\. Name more"):
        compute_joint_clean_list(scores, calibration, rate=0.05)


def test_items_without_a_score_by_every_model_are_not_tested() -> None:
    calibration = arrays_of(a=np.arange(19), b=np.arange(19))
    with pytest.raises(DataError, match="no tested item has a score by every model"):
        compute_joint_clean_list(arrays_of(a=[1.0, NAN], b=[NAN, 1.0]), calibration, rate=0.05)
    found = compute_joint_clean_list(arrays_of(a=[-1.0, NAN], b=[-1.0, -1.0]), calibration, rate=0.05)
    assert found.n_tested == 1
    assert found.clean_bh.tolist() == [True, False]


def list_by_brute_force(
    scores: Mapping[str, Floats], calibration: Mapping[str, Floats], rate: Fraction, factor: Fraction
) -> set[int]:
    """Return the listed items by exact fractions: the largest r such that r items have p <= r * rate / (m * factor)."""
    p_values: dict[int, Fraction] = {}
    for item in range(len(scores["a"])):
        of_models = []
        for model, known in calibration.items():
            score = scores[model][item]
            n_at_most = sum(bool(value <= score) for value in known)
            of_models.append(Fraction(1 + n_at_most, len(known) + 1))
        if not any(np.isnan(values[item]) for values in scores.values()):
            p_values[item] = max(of_models)
    for count in range(len(p_values), 0, -1):
        border = count * rate / (len(p_values) * factor)
        chosen = {item for item, p_value in p_values.items() if p_value <= border}
        if len(chosen) >= count:
            return chosen
    return set()


def test_the_lists_are_those_of_a_brute_force_twin() -> None:
    generator = np.random.default_rng(0)
    lengths = set()
    for _ in range(200):
        n_items = int(generator.integers(1, 12))
        scores = {}
        calibration = {}
        for model in ("a", "b"):
            # Whole numbers, so that there are ties.
            scores[model] = generator.integers(-6, 6, n_items).astype(np.float64)
            scores[model][generator.random(n_items) < 0.1] = NAN
            calibration[model] = generator.integers(0, 15, int(generator.integers(9, 40))).astype(np.float64)
        rate = Fraction(int(generator.integers(2, 9)), 20)
        n_tested = int((~np.isnan(scores["a"]) & ~np.isnan(scores["b"])).sum())
        if not n_tested:
            continue
        found = compute_joint_clean_list(scores, calibration, float(rate))
        harmonic = sum(Fraction(1, rank) for rank in range(1, n_tested + 1))
        assert found.n_tested == n_tested
        for listed, factor, shortest in (
            (found.clean_bh, Fraction(1), found.min_listed_bh),
            (found.clean_by, harmonic, found.min_listed_by),
        ):
            expected = list_by_brute_force(scores, calibration, rate, factor)
            assert set(np.flatnonzero(listed)) == expected
            assert not expected or len(expected) >= shortest
            lengths.add(len(expected))
    assert len(lengths) > 5, "lists of different lengths, also empty ones"


# Simulations.

SIMULATIONS = 2000
RATE = 0.2
N_ITEMS = 60
N_MODELS = 3
N_CALIBRATION = 400
EFFECT = 6.0
# The number of standard errors. The chance that a mean at the rate lies this far above it is 1 in 10,000.
STANDARD_ERRORS = 3.72


def draw_scores(generator: np.random.Generator, n_items: int, common: float, *, opposed: bool) -> list[Floats]:
    """Draw scores of items by all models that share a part ``common`` of their variance.

    The common part of an item is the same for all models. If ``opposed`` is True, it has the other sign for every
    second model, so the models depend on each other negatively.
    """
    shared = generator.standard_normal(n_items)
    signs = [1.0] * N_MODELS
    if opposed:
        signs = [1.0, -1.0, 1.0]
    drawn = []
    for sign in signs:
        own = generator.standard_normal(n_items)
        drawn.append(sign * np.sqrt(common) * shared + np.sqrt(1 - common) * own)
    return drawn


def simulate_list(
    generator: np.random.Generator, common: float, *, opposed: bool, read_by_all: bool
) -> tuple[JointCleanList, Bools]:
    """Compute the list of one simulated audit, and which items are contaminated for at least one model.

    Three of four items are contaminated: for one model, or for all of them. Reading an item raises its score by
    EFFECT. The scores of a calibration item depend on each other like those of an item.
    """
    n_contaminated = N_ITEMS * 3 // 4
    is_contaminated = np.arange(N_ITEMS) < n_contaminated
    reader = generator.integers(N_MODELS, size=N_ITEMS)
    scores: dict[str, Floats] = {}
    calibration: dict[str, Floats] = {}
    drawn = draw_scores(generator, N_ITEMS, common, opposed=opposed)
    known = draw_scores(generator, N_CALIBRATION, common, opposed=opposed)
    for model in range(N_MODELS):
        is_read = is_contaminated & (read_by_all | (reader == model))
        scores[f"m{model}"] = drawn[model] + EFFECT * is_read
        calibration[f"m{model}"] = known[model] + EFFECT
    return compute_joint_clean_list(scores, calibration, RATE), is_contaminated


def measure_share(listed: Bools, is_contaminated: Bools) -> float:
    """Return the share of contaminated items in a list. It is 0 if the list is empty."""
    return float((listed & is_contaminated).sum() / max(1, listed.sum()))


@pytest.mark.parametrize(
    ("common", "opposed", "read_by_all"), [(0.6, False, False), (0.9, False, True), (0.6, True, False)]
)
def test_the_share_of_contaminated_items_stays_below_the_rate(common: float, opposed: bool, read_by_all: bool) -> None:
    """Check that the mean share over 2,000 audits exceeds the bound by at most its Monte-Carlo error.

    The shares of the audits are independent and lie between 0 and 1. The standard error of their mean is their standard
    deviation divided by the square root of 2,000. Benjamini and Yekutieli's list is below the rate under every
    dependence, Benjamini and Hochberg's under positive dependence. Three of four items are contaminated, so three
    quarters of the rate bound the share (Benjamini and Yekutieli 2001, theorem 1.2).
    """
    generator = np.random.default_rng([int(common * 10), opposed, read_by_all])
    shares: dict[str, list[float]] = {"bh": [], "by": [], "one model": []}
    n_clean_listed = {"bh": 0, "by": 0}
    for _ in range(SIMULATIONS):
        found, is_contaminated = simulate_list(generator, common, opposed=opposed, read_by_all=read_by_all)
        shares["bh"].append(measure_share(found.clean_bh, is_contaminated))
        shares["by"].append(measure_share(found.clean_by, is_contaminated))
        shares["one model"].append(measure_share(found.model_p_values["m0"] <= RATE, is_contaminated))
        n_clean_listed["bh"] += int((found.clean_bh & ~is_contaminated).sum())
        n_clean_listed["by"] += int((found.clean_by & ~is_contaminated).sum())
    means = {name: float(np.mean(values)) for name, values in shares.items()}
    errors = {name: float(np.std(values) / np.sqrt(SIMULATIONS)) for name, values in shares.items()}
    assert means["by"] <= RATE * 3 / 4 + STANDARD_ERRORS * errors["by"]
    if not opposed:
        assert means["bh"] <= RATE * 3 / 4 + STANDARD_ERRORS * errors["bh"]
    # The lists have nearly all clean items, so the bounds do not hold just because the lists are empty.
    for n_listed in n_clean_listed.values():
        assert n_listed >= 0.95 * SIMULATIONS * N_ITEMS / 4
    if not read_by_all:
        # The bound is nearly reached, and the p-values of one model alone miss what the other models have read.
        assert means["bh"] >= RATE * 3 / 4 - 0.01
        assert means["one model"] > 2 * RATE
