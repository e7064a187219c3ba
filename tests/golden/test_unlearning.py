"""Parity of exact memorisation and extraction strength with reference values, on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit_pipeline.extras.unlearning.statistics import exact_memorization, extraction_strength
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer, with_overrides
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.forward import ForwardPass

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden" / "field_prefix.jsonl"
METRICS = {"exact_memorization": exact_memorization, "extraction_strength": extraction_strength}

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the golden values (../shared/golden) are not on this machine"
)


def test_every_golden_value_of_memorisation_is_met(
    real_model: tuple[TokenizedModel, ForwardPass], real_data: DataPaths, tmp_path: Path
) -> None:
    """The authors leave out the last token, and give 1/n where the last one is no first choice: so does the test."""
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["detector"] in METRICS]
    assert {name: sum(row["detector"] == name for row in rows) for name in METRICS} == {
        "exact_memorization": 24,
        "extraction_strength": 36,
    }
    always, forward = real_model
    # The reference takes the tokenizer as it is: without a start token here, so that the first token is not scored.
    model = load_tokenizer(with_overrides(always.entry, start_token_policy="tokenizer"), real_data)
    texts = {(row["file"], row["row"]): _text(row["file"], row["row"]) for row in rows}
    session = Session(model, [], DataPaths(tmp_path))
    session.run(list(texts.values()), lambda wanted: forward)
    known = session.statistics(list(texts.values()))
    for row in rows:
        found = known.find(texts[row["file"], row["row"]])
        assert found is not None
        matches = found.argmax_id == found.token_id
        dropped = row["parameters"]["last_label"] == "dropped"
        kept = matches[:-1] if dropped else matches
        ours = METRICS[row["detector"]](kept)
        if row["detector"] == "extraction_strength" and (dropped or row["parameters"]["floor"] == "1/n"):
            ours = max(ours, 1 / len(kept))
        assert ours == pytest.approx(row["score"], abs=1e-4), row


def _text(file: str, row: int) -> str:
    lines = (SHARED / "benchmarks" / "wikimia" / file).read_text(encoding="utf-8").splitlines()
    return str(json.loads(lines[row])["input"])
