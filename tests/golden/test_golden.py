"""Parity with the authors' published code, text by text, on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit_pipeline.contracts import canonical_json
from audit_pipeline.detectors.registry import select
from audit_pipeline.detectors.score import score_texts
from audit_pipeline.detectors.statistics import StatisticsIndex
from audit_pipeline.models.load import TokenizedModel, load_tokenizer, with_overrides
from audit_pipeline.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass
from audit_pipeline.token_statistics.run import compute, read_statistics

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden" / "wikimia_smollm2.jsonl"
WIKIMIA = SHARED / "benchmarks" / "wikimia"
DETECTORS = ("loss", "zlib", "min_k", "min_k_plus_plus")
ABSOLUTE = {"min_k_plus_plus": 1e-4}


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden scores (../shared/golden) are not on this machine")
def test_every_golden_score_is_met(
    real_model: tuple[TokenizedModel, ForwardPass], real_data: DataPaths, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["detector"] in DETECTORS]
    texts: dict[str, str] = {}
    for name in sorted({row["file"] for row in rows}):
        lines = (WIKIMIA / name).read_text(encoding="utf-8").splitlines()
        wanted = {row["row"] for row in rows if row["file"] == name}
        texts.update({f"{name}:{number}": json.loads(lines[number])["input"] for number in wanted})

    always, forward = real_model
    paths = DataPaths(tmp_path)
    # The papers' code takes the tokenizer as it is: without a start token here, the first token is not scored.
    model = load_tokenizer(with_overrides(always.entry, start_token_policy="tokenizer"), real_data)
    summary = compute(model, list(texts.values()), paths, lambda: forward)
    assert summary.texts_computed == len(texts) >= 100

    index = StatisticsIndex(read_statistics(model, list(texts.values()), paths))
    scores = score_texts(index.of_examples(texts.items()), select(DETECTORS, grid=True)).to_pylist()
    ours = {(row["example_id"], row["detector"], row["parameters"]): row["score"] for row in scores}
    far = []
    for row in rows:
        key = f"{row['file']}:{row['row']}", row["detector"], canonical_json(row["parameters"])
        expected = pytest.approx(row["score"], rel=1e-3, abs=ABSOLUTE.get(row["detector"], 0.0))
        if ours[key] != expected:
            far.append((key, ours[key], row["score"]))
    assert not far, f"{len(far)} of {len(rows)} scores differ, the first: {far[:3]}"
