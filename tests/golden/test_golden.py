"""Parity with the authors' published code, text by text, on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit_pipeline.detectors.registry import restrict_settings, select
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenizer, with_overrides
from audit_pipeline.scoring.session import Selection, Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import canonical_json
from audit_pipeline.token_statistics.forward import ForwardPass

SHARED = Path(__file__).parent.parent.parent.parent / "shared"
GOLDEN = SHARED / "golden" / "wikimia_smollm2.jsonl"
WIKIMIA = SHARED / "benchmarks" / "wikimia"
FROM_A_PASS = ("loss", "zlib", "lowercase", "min_k", "min_k_plus_plus")
ABSOLUTE = {"min_k_plus_plus": 1e-4, "infilling": 2e-4}
LARGEST_M = 20
SOME = slice(2, None, 20)
"""In the order of their files, one a length: of each length, but of infilling none of the longest."""

pytestmark = pytest.mark.skipif(
    not GOLDEN.exists(), reason="the golden scores (../shared/golden) are not on this machine"
)


def as_published() -> Selection:
    """Infilling as the authors' code has it, up to the largest m that there are golden scores of."""
    [(detector, settings)] = select(["infilling"], grid=True, overrides={"infilling": {"last_token_as_future": False}})
    return [(detector, restrict_settings(detector, {"m": LARGEST_M}, settings))]


@pytest.mark.parametrize(
    "which", [SOME, pytest.param(slice(None), marks=pytest.mark.slow)], ids=["some texts", "every text"]
)
@pytest.mark.parametrize(
    "selection", [select(FROM_A_PASS, grid=True), as_published()], ids=["one pass and lowercase", "infilling"]
)
def test_every_golden_score_is_met(
    selection: Selection,
    which: slice,
    real_model: tuple[TokenizedModel, ForwardPass],
    real_data: DataPaths,
    tmp_path: Path,
) -> None:
    detectors = [detector.name for detector, _ in selection]
    rows = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["detector"] in detectors]
    chosen = sorted({(row["file"], row["row"]) for row in rows})[which]
    rows = [row for row in rows if (row["file"], row["row"]) in chosen]
    texts: dict[str, str] = {}
    for name in sorted({row["file"] for row in rows}):
        lines = (WIKIMIA / name).read_text(encoding="utf-8").splitlines()
        wanted = {row["row"] for row in rows if row["file"] == name}
        texts.update({f"{name}:{number}": json.loads(lines[number])["input"] for number in wanted})

    always, forward = real_model
    paths = DataPaths(tmp_path)
    # The papers' code takes the tokenizer as it is: without a start token here, the first token is not scored.
    model = load_tokenizer(with_overrides(always.entry, start_token_policy="tokenizer"), real_data)
    session = Session(model, selection, paths)
    session.run(list(texts.values()), lambda wanted: forward)
    assert len(texts) == len(chosen) > 1

    scores = session.score(list(texts), list(texts.values())).to_pylist()
    ours = {(row["example_id"], row["detector"], row["parameters"]): row["score"] for row in scores}
    far = []
    for row in rows:
        key = f"{row['file']}:{row['row']}", row["detector"], canonical_json(row["parameters"])
        expected = pytest.approx(row["score"], rel=1e-3, abs=ABSOLUTE.get(row["detector"], 0.0))
        if ours[key] != expected:
            far.append((key, ours[key], row["score"]))
    assert not far, f"{len(far)} of {len(rows)} scores differ, the first: {far[:3]}"
