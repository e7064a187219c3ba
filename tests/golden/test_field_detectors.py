"""Parity with the field's detectors from one pass, and with copies, value by value, on the embedded model."""

from __future__ import annotations

import random
from typing import Any

import pytest

from audit_pipeline.detectors.detector import ParameterValue
from audit_pipeline.detectors.perturbed import STREAM, TEXT, CopySettings, compute_polarized_distance
from audit_pipeline.detectors.reference import compute_vote_share
from audit_pipeline.detectors.registry import get_detector
from audit_pipeline.scoring.needs.derived_texts import draw_word_orders, make_shuffled_copies
from audit_pipeline.scoring.session import Session
from audit_pipeline.store.paths import DataPaths
from tests.golden.field_values import (
    ONE_PASS,
    PERMUTATIONS,
    PREFIX,
    GoldenValue,
    RealModel,
    as_published,
    far_off,
    golden_values,
    needs_golden_values,
    rows_of,
    scored,
    wikimia_rows,
    wikimia_text,
)

pytestmark = needs_golden_values

OURS = {
    "gap_k": "gap_k",
    "win_k": "min_k",
    "surp": "surp",
    "fast_detect_curvature": "curvature",
    "log_rank": "log_rank",
    "loss": "loss",
    "zlib": "zlib",
    "min_k": "min_k",
    "min_k_plus_plus": "min_k_plus_plus",
}
"""Our detectors by the name that the golden file has for them."""


@pytest.mark.parametrize("name", OURS)
def test_every_golden_value_is_reproduced(name: str, real_model: RealModel, real_data: DataPaths) -> None:

    def setting_of(one: GoldenValue) -> dict[str, ParameterValue]:
        return {name: value for name, value in one.parameters.items() if name != "empty"}

    def expected(one: GoldenValue) -> GoldenValue:
        """Return the value, or None for an empty selection, for which the golden file has a number."""
        return one if one.value != one.parameters.get("empty") else GoldenValue(**{**vars(one), "value": None})

    values = golden_values(ONE_PASS, name)
    detector, settings = get_detector(OURS[name]), [setting_of(one) for one in values]
    ours = scored([one.text for one in values], {detector.name: settings}, real_model, real_data)
    pairs = [
        (expected(one), ours[one.text, detector.name, detector.to_json(setting)])
        for one, setting in zip(values, settings, strict=True)
    ]
    assert far_off((one, found.score) for one, found in pairs) == []
    assert {found.status for one, found in pairs if one.value is None} <= {"not_applicable"}


def test_votes_of_windows_are_reproduced_except_ties(real_model: RealModel, real_data: DataPaths) -> None:
    """The entropies of the same pass replace a reference model's losses. A near-tie may fall either way."""
    values = golden_values(ONE_PASS, "wbc")
    scored([one.text for one in values], {"loss": [{}]}, real_model, real_data)
    known = Session(as_published(real_model, real_data), [], real_data).statistics([one.text for one in values])
    off = []
    for one in values:
        found = known.find(one.text)
        assert found is not None
        windows = [int(window) for window in one.parameters["windows"]]
        ours = compute_vote_share(found.logprob, found.mean, windows)
        # One stretch of one window's length that falls the other way.
        flip = max(1 / (len(found) - min(window, len(found)) + 1) for window in windows) / len(windows)
        assert abs(ours - one.value) <= flip + 1e-9, one.row
        off.extend(far_off([(one, ours)]))
    assert len(off) <= len(values) / 100, off


def golden_permutations(seeds: str) -> list[dict[str, Any]]:
    rule = {TEXT: "per_text_sha256", STREAM: "stream"}[seeds]
    return [row for row in rows_of(PERMUTATIONS) if row["seed_rule"] == rule]


def of_the_stream() -> list[str]:
    """Return the texts of the authors' stream in order: the file's first 12 members, then its first 12 non-members."""
    rows = wikimia_rows("WikiMIA_length32.jsonl")
    return [text for label in (1, 0) for text in [str(row["input"]) for row in rows if row["label"] == label][:12]]


def test_the_copies_of_a_text_are_those_of_the_golden_file() -> None:
    rows = golden_permutations(TEXT)
    assert len(rows) == 12
    for row in rows:
        text = wikimia_text(row["file"], row["row"])
        words = text.split(" ")
        golden = [" ".join(words[word] for word in order) for order in row["permutations"]]
        assert make_shuffled_copies(text, CopySettings(row["alpha"], row["n"], TEXT)) == golden


def test_the_stream_over_a_file_is_that_of_the_authors() -> None:
    rows = golden_permutations(STREAM)
    golden = {wikimia_text(row["file"], row["row"]): row["permutations"] for row in rows}
    assert len(golden) == 12
    stream = random.Random(0)
    ours = {text: draw_word_orders(len(text.split(" ")), 0.3, 5, stream) for text in of_the_stream()}
    assert {text: ours[text] for text in golden} == golden


def test_the_polarized_distance_of_every_text_is_reproduced(real_model: RealModel, real_data: DataPaths) -> None:
    values = golden_values(PREFIX, "pac.polarized_distance")
    assert len(values) == 12
    texts = [one.text for one in values]
    scored(texts, {"loss": [{}]}, real_model, real_data)
    known = Session(as_published(real_model, real_data), [], real_data).statistics(texts)
    pairs = [
        (one, compute_polarized_distance(found.logprob))
        for one in values
        if (found := known.find(one.text)) is not None
    ]
    assert len(pairs) == len(values)
    assert far_off(pairs, relative=1e-4) == []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [TEXT, STREAM])
def test_every_golden_value_of_pac_is_reproduced(seeds: str, real_model: RealModel, real_data: DataPaths) -> None:
    rule = {TEXT: "per_text_sha256", STREAM: "stream"}[seeds]
    values = [one for one in golden_values(PREFIX, "pac") if one.parameters["seed_rule"] == rule]
    assert len(values) == 12
    setting: dict[str, ParameterValue] = {"alpha": 0.3, "n": 5, "seeds": seeds}
    texts = of_the_stream() if seeds == STREAM else [one.text for one in values]
    ours = scored(texts, {"pac": [setting]}, real_model, real_data)
    label = get_detector("pac").to_json(setting)
    pairs = [(one, ours[one.text, "pac", label].score) for one in values]
    assert far_off(pairs, relative=1e-4) == []
