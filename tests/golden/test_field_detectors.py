"""Parity with the field's detectors from one pass, value by value, on the embedded model."""

from __future__ import annotations

from typing import Any

import pytest

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.detectors.detector import ParameterValue
from audit_pipeline.detectors.registry import get
from tests.golden.field_values import ONE_PASS, RealModel, far_off, golden_values, needs_golden_values, scored

pytestmark = needs_golden_values

OURS = {
    "loss": "loss",
    "zlib": "zlib",
    "min_k": "min_k",
    "min_k_plus_plus": "min_k_plus_plus",
}
"""Our detectors by the name that the golden file has for them."""


def setting_of(parameters: dict[str, Any]) -> dict[str, ParameterValue]:
    """Our detector's setting for the golden parameters."""
    return dict(parameters)


@pytest.mark.parametrize("name", OURS)
def test_every_golden_value_is_met(name: str, real_model: RealModel, real_data: DataPaths) -> None:
    values = golden_values(ONE_PASS, name)
    detector, settings = get(OURS[name]), [setting_of(dict(one.parameters)) for one in values]
    ours = scored([one.text for one in values], {detector.name: settings}, real_model, real_data)
    pairs = [
        (one, ours[one.text, detector.name, detector.label(setting)].score)
        for one, setting in zip(values, settings, strict=True)
    ]
    assert far_off(pairs) == []
