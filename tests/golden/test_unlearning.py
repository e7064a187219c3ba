"""Parity of exact memorisation and extraction strength with reference values, on the embedded model."""

from __future__ import annotations

import pytest

from audit_pipeline.extras.unlearning.measures import compute_exact_memorization, compute_extraction_strength
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from tests.golden.field_values import PREFIX, RealModel, as_published, golden_values, needs_golden_values

METRICS = {"exact_memorization": compute_exact_memorization, "extraction_strength": compute_extraction_strength}

pytestmark = needs_golden_values


def test_every_golden_value_of_memorisation_is_reproduced(real_model: RealModel, real_data: DataPaths) -> None:
    """The authors omit the last token, and return 1/n if the last token is not the argmax. The test does the same."""
    values = golden_values(PREFIX, *METRICS)
    assert [sum(value.detector == name for value in values) for name in METRICS] == [24, 36]
    texts = [value.text for value in values]
    session = Session(as_published(real_model, real_data), [], real_data)
    session.run(texts, lambda wanted: real_model[1])
    known = session.statistics(texts)
    for value in values:
        found = known.find(value.text)
        assert found is not None
        matches = found.argmax_id == found.token_id
        dropped = value.parameters["last_label"] == "dropped"
        kept = matches[:-1] if dropped else matches
        ours = METRICS[value.detector](kept)
        if value.detector == "extraction_strength" and (dropped or value.parameters["floor"] == "1/n"):
            ours = max(ours, 1 / len(kept))
        assert ours == pytest.approx(value.row["score"], abs=1e-4), value.row
