"""Parity of extraction with reference values, window by window, on the embedded model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from audit_pipeline.extras.extraction.conclusions import windows_from_rows
from audit_pipeline.extras.extraction.defaults import WindowLengths
from audit_pipeline.extras.extraction.windows import encode_windows_at, read_windows, run_windows
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer, with_overrides
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden" / "field_prefix.jsonl"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GOLDEN.exists(), reason="the golden values (../shared/golden) are not on this machine"),
]


def test_every_golden_probability_of_a_suffix_is_met(
    real_model: tuple[TokenizedModel, ForwardPass], real_data: DataPaths, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["detector"] == "extraction_log_pz"]
    assert len(rows) >= 24
    always, forward = real_model
    # The reference takes the tokenizer as it is: without a start token here.
    model = load_tokenizer(with_overrides(always.entry, start_token_policy="tokenizer"), real_data)
    for row in rows:
        lines = (SHARED / "benchmarks" / "wikimia" / row["file"]).read_text(encoding="utf-8").splitlines()
        text, given = json.loads(lines[row["row"]])["input"], row["parameters"]
        windows = encode_windows_at(model, text, [0], WindowLengths(given["prefix_tokens"], given["suffix_tokens"]))
        run_windows(model, windows, DataPaths(tmp_path), lambda: forward)
        found = windows_from_rows(read_windows(model, windows, DataPaths(tmp_path)))
        [ours] = found.log_p if given["top_k"] is None else found.log_p_top
        expected = -math.inf if row["score"] is None else row["score"]
        # A sum over a suffix of 20 to 30 tokens: the bare model, run here, is up to 8e-4 away, too.
        assert ours == pytest.approx(expected, rel=2e-5), row
