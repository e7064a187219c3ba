"""Parity with the authors' published code, text by text, on the embedded model."""

from __future__ import annotations

import pytest

from audit_pipeline.detectors.registry import select_detectors
from audit_pipeline.scoring.session import Selection, Session
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import canonical_json
from tests.golden.field_values import GOLDEN, RealModel, as_published, rows_of, wikimia_text

FILE = "wikimia_smollm2.jsonl"
FROM_A_PASS = ("loss", "zlib", "lowercase", "min_k", "min_k_plus_plus")
ABSOLUTE = {"min_k_plus_plus": 1e-4, "infilling": 2e-4}
LARGEST_M = 20
SOME = slice(2, None, 20)
"""In the order of their files, one a length: of each length, but of infilling none of the longest."""

pytestmark = pytest.mark.skipif(
    not (GOLDEN / FILE).exists(), reason="the golden scores (../shared/golden) are not on this machine"
)


def published_infilling() -> Selection:
    """Return infilling as in the authors' code, up to the largest m with golden scores."""
    [(detector, settings)] = select_detectors(
        ["infilling"], grid=True, overrides={"infilling": {"last_token_as_future": False}}
    )
    return [(detector, [setting for setting in settings if int(setting["m"]) <= LARGEST_M])]


@pytest.mark.parametrize(
    "which", [SOME, pytest.param(slice(None), marks=pytest.mark.slow)], ids=["some texts", "every text"]
)
@pytest.mark.parametrize(
    "selection",
    [select_detectors(FROM_A_PASS, grid=True), published_infilling()],
    ids=["one pass and lowercase", "infilling"],
)
def test_every_golden_score_is_reproduced(
    selection: Selection, which: slice, real_model: RealModel, real_data: DataPaths
) -> None:
    detectors = [detector.name for detector, _ in selection]
    rows = [row for row in rows_of(FILE) if row["detector"] in detectors]
    chosen = sorted({(row["file"], row["row"]) for row in rows})[which]
    texts = {f"{file}:{number}": wikimia_text(file, number) for file, number in chosen}
    assert len(texts) == len(chosen) > 1
    session = Session(as_published(real_model, real_data), selection, real_data)
    session.run(list(texts.values()), lambda wanted: real_model[1])

    scores = session.score(list(texts), list(texts.values())).to_pylist()
    ours = {(row["example_id"], row["detector"], row["parameters"]): row["score"] for row in scores}
    compared = [row for row in rows if (row["file"], row["row"]) in chosen]
    far = []
    for row in compared:
        key = f"{row['file']}:{row['row']}", row["detector"], canonical_json(row["parameters"])
        expected = pytest.approx(row["score"], rel=1e-3, abs=ABSOLUTE.get(row["detector"], 0.0))
        if ours[key] != expected:
            far.append((key, ours[key], row["score"]))
    assert not far, f"{len(far)} of {len(compared)} scores differ, the first: {far[:3]}"
