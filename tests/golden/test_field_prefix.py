"""Parity with the authors' code of the detectors that take a prefix, value by value, on the embedded model."""

from __future__ import annotations

import pytest

from audit_pipeline.detectors.loss import compute_mean_logprob
from audit_pipeline.detectors.recall import MEMBER_PREFIX, NONMEMBER_PREFIX
from audit_pipeline.detectors.registry import get_detector
from audit_pipeline.scoring.needs.provider import UserInputs
from audit_pipeline.scoring.prefix_shots import MEMBERS, NON_MEMBERS
from audit_pipeline.scoring.session import Session, Statistics
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import canonical_json
from tests.golden.field_values import (
    PREFIX,
    GoldenValue,
    RealModel,
    as_published,
    far_off,
    golden_values,
    needs_golden_values,
    rows_of,
    wikimia_text,
)

pytestmark = [pytest.mark.slow, needs_golden_values]

FILE = "WikiMIA_length32.jsonl"
RELATIVE = 1e-4
# At a gamma near 1 the two parts cancel, so a relative tolerance would ask for more than float32 holds.
CANCELLED = 2e-6
SHOTS = (1, 4, 7)
GAMMAS = (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def block(side: str) -> list[str]:
    """Return the texts of the longest golden prefix of a side."""
    found = [row["prefix_rows"][side] for row in rows_of(PREFIX) if side in row.get("prefix_rows", {})]
    longest = max(found, key=len)
    assert all(one == longest[: len(one)] for one in found)
    return [wikimia_text(FILE, number) for number in longest]


@pytest.fixture(scope="module")
def measured(
    real_model: RealModel, real_data: DataPaths, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Session, Statistics]:
    selection = [
        (get_detector("recall"), [{"shots": shots, "join": "none"} for shots in SHOTS]),
        (
            get_detector("con_recall"),
            [{"shots": shots, "gamma": gamma, "join": "none"} for shots in SHOTS for gamma in GAMMAS],
        ),
    ]
    beside = UserInputs(known={NON_MEMBERS: block("nonmembers"), MEMBERS: block("members")})
    where = DataPaths(tmp_path_factory.mktemp("prefixed"))
    session = Session(as_published(real_model, real_data), selection, where, user_inputs=beside)
    texts = list(dict.fromkeys(one.text for one in golden_values(PREFIX, "recall.ll")))
    session.run(texts, lambda _: real_model[1])
    return session, session.statistics(texts)


def test_the_log_likelihoods_are_reproduced(measured: tuple[Session, Statistics]) -> None:
    _, statistics = measured
    needs = {"recall.ll_given_nonmembers": NONMEMBER_PREFIX, "recall.ll_given_members": MEMBER_PREFIX}

    def of(one: GoldenValue) -> float:
        found = statistics.find(one.text)
        assert found is not None
        if one.detector == "recall.ll":
            return compute_mean_logprob(found)
        behind = found.get_extra(needs[one.detector])[one.parameters["shots"], "none"]
        return float(behind.mean(dtype="float64"))  # type: ignore[union-attr]

    values = golden_values(PREFIX, "recall.ll", *needs)
    assert len(values) == 12 + 36 + 36
    assert far_off([(one, of(one)) for one in values], absolute=0.0, relative=RELATIVE) == []


@pytest.mark.parametrize(("name", "number", "absolute"), [("recall", 36, 0.0), ("con_recall", 324, CANCELLED)])
def test_the_scores_are_reproduced(
    name: str, number: int, absolute: float, measured: tuple[Session, Statistics]
) -> None:
    session, _ = measured
    values = golden_values(PREFIX, name)
    assert len(values) == number
    texts = list(dict.fromkeys(one.text for one in values))
    scores = {
        (texts[int(row["example_id"])], row["parameters"]): row["score"]
        for row in session.score([str(place) for place in range(len(texts))], texts).to_pylist()
        if row["detector"] == name
    }
    found = [(one, scores[one.text, canonical_json(one.parameters)]) for one in values]
    assert far_off(found, absolute=absolute, relative=0.0 if absolute else RELATIVE) == []
