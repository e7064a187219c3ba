"""Parity of extraction with reference values, window by window, on the embedded model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from audit_pipeline.extras.extraction import WindowLengths
from audit_pipeline.extras.extraction.memorisation import windows_from_rows
from audit_pipeline.extras.extraction.window_probabilities import encode_windows_at, read_windows, run_windows
from audit_pipeline.store.paths import DataPaths
from tests.golden.field_values import PREFIX, RealModel, as_published, golden_values, needs_golden_values

pytestmark = [pytest.mark.slow, needs_golden_values]


def test_every_golden_probability_of_a_suffix_is_reproduced(
    real_model: RealModel, real_data: DataPaths, tmp_path: Path
) -> None:
    values = golden_values(PREFIX, "extraction_log_pz")
    assert len(values) >= 24
    model = as_published(real_model, real_data)
    for value in values:
        given = value.parameters
        lengths = WindowLengths(given["prefix_tokens"], given["suffix_tokens"])
        windows = encode_windows_at(model, value.text, [0], lengths)
        run_windows(model, windows, DataPaths(tmp_path), lambda: real_model[1])
        found = windows_from_rows(read_windows(model, windows, DataPaths(tmp_path)))
        [ours] = found.log_p if given["top_k"] is None else found.log_p_top
        expected = -math.inf if value.row["score"] is None else value.row["score"]
        # A sum over a suffix of 20 to 30 tokens: the bare model, run here, is up to 8e-4 away, too.
        assert ours == pytest.approx(expected, rel=2e-5), value.row
