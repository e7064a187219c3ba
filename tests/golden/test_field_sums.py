"""Parity of Max-Rényi and ACMIA with golden values of their authors' code, on the embedded model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from audit_pipeline.detectors.acmia import compute_ac, compute_norm_ac
from audit_pipeline.detectors.detector import Settings
from audit_pipeline.detectors.max_renyi import compute_renyi_entropy
from audit_pipeline.detectors.registry import get_detector, select_detectors
from audit_pipeline.scoring.session import Session, Statistics
from audit_pipeline.store.paths import DataPaths
from tests.golden.field_values import (
    ONE_PASS,
    GoldenValue,
    RealModel,
    as_published,
    far_off,
    golden_values,
    needs_golden_values,
    scored,
)

pytestmark = [pytest.mark.slow, needs_golden_values]

# Above it the deviation of the distribution goes to 0, and float32 with it: its README leaves these aside.
LARGEST_STEP_OF_NORM_AC = 20
# k = 0 is one position. One is far off (docs/measurements.md), behind the same beginning of three texts: activations
# are massive there, and the body of the model in float32 is 1.4e-4 nat from itself in float64 here, and 4e-4 in the
# authors' run, whose logits `float64` was computed from.
AT_THE_POSITION, VALUES_OF_THE_POSITION = 4e-4, 6


def setting_of(detector: str, parameters: Mapping[str, Any]) -> Settings:
    return {name: get_detector(detector).parameters[name].validate(value) for name, value in parameters.items()}


def test_max_renyi_of_every_order_and_share(real_model: RealModel, real_data: DataPaths) -> None:

    def position_of(one: GoldenValue, known: Statistics) -> tuple[str, int]:
        """Return the context of the single position at k = 0: the first word of the text, and the number of tokens."""
        assert one.parameters["k"] == 0, f"where more than one position is averaged, none is far off: {one.row}"
        statistics = known.find(one.text)
        assert statistics is not None
        entropy = compute_renyi_entropy(statistics, one.parameters["alpha"])
        return one.text.split()[0], int(entropy.argmax() if one.parameters["select"] == "max" else entropy.argmin())

    golden = golden_values(ONE_PASS, "max_renyi")
    settings = {id(one): setting_of("max_renyi", one.parameters) for one in golden}
    wanted = list({get_detector("max_renyi").to_json(one): one for one in settings.values()}.values())
    ours = scored([one.text for one in golden], {"max_renyi": wanted}, real_model, real_data)
    pairs = [
        (one, ours[one.text, "max_renyi", get_detector("max_renyi").to_json(settings[id(one)])].score) for one in golden
    ]
    assert len(pairs) == 18 * 2 * 4 * 12
    assert not far_off(pairs, absolute=AT_THE_POSITION)
    far = [one for one, found in pairs if far_off([(one, found)])]
    assert len(far) <= VALUES_OF_THE_POSITION, far
    session = Session(as_published(real_model, real_data), select_detectors(["max_renyi"], grid=True), real_data)
    known = session.statistics([one.text for one in far])
    assert len({position_of(one, known) for one in far}) <= 1, far


def test_acmia_at_every_temperature(real_model: RealModel, real_data: DataPaths) -> None:
    golden = [
        one
        for one in golden_values(ONE_PASS, "acmia_ac", "acmia_norm_ac")
        if one.detector == "acmia_ac" or one.parameters["j"] < LARGEST_STEP_OF_NORM_AC
    ]
    texts = list(dict.fromkeys(one.text for one in golden))
    # Through the session, and then at the betas that are not offered as well: AC is 0 at 1, and NormAC ends at 2.
    session = Session(as_published(real_model, real_data), select_detectors(["acmia_ac", "acmia_norm_ac"]), real_data)
    session.run(texts, lambda _: real_model[1])
    found = session.statistics(texts)
    formulas = {"acmia_ac": compute_ac, "acmia_norm_ac": compute_norm_ac}

    def ours(one: GoldenValue) -> float:
        statistics = found.find(one.text)
        assert statistics is not None
        parameter = get_detector(one.detector).parameters["beta"]
        offered = parameter.accepts(one.parameters["beta"])
        is_to_be = one.parameters["j"] != 0 if one.detector == "acmia_ac" else one.parameters["j"] <= 10
        assert offered is is_to_be, one.parameters
        if not offered:
            return float(formulas[one.detector](statistics, one.parameters["beta"]).mean())
        [outcome] = get_detector(one.detector).score(
            statistics, [setting_of(one.detector, {"beta": one.parameters["beta"]})]
        )
        assert outcome.score is not None, outcome.reason
        return outcome.score

    assert len(golden) == 18 * (23 + 20)
    assert not far_off([(one, ours(one)) for one in golden])
