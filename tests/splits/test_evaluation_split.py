"""The texts of an evaluation split and its assessment."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from made_rows import example, examples_table

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.splits.blind_controls import compute_blind_control
from audit_pipeline.splits.evaluation_split import (
    bin_dates,
    build_assessed_split_from_tables,
    compute_assessed_split,
    compute_shares,
    group_places_by_side,
    select_evaluation_texts,
    select_labelled_examples,
)
from audit_pipeline.splits.split_quality import measure_split_quality
from audit_pipeline.statistics.roc import compute_metrics
from audit_pipeline.tables import BLIND_SCORES


def made(n: int = 240, seed: int = 0) -> pa.Table:
    """Return examples of made-up words. Half of the members contain a telling word. A few texts have no label."""
    generator = np.random.default_rng(seed)
    rows = []
    for index in range(n):
        label: int | None = None if index % 40 == 0 else index % 2
        words = [f"word{word}" for word in generator.integers(0, 200, 15)] + ["telltale"] * (
            label == 1 and index % 4 == 1
        )
        own = {"label": label, "split": "calibration" if index % 41 == 0 else "evaluation", "group": f"g{index // 2}"}
        rows.append(example(f"{index:05d}", text=" ".join(words), benchmark="made", **own))
    return examples_table(rows)


def test_the_control_uses_every_labelled_text_of_the_evaluation_split() -> None:
    examples = made()
    labelled = select_labelled_examples(examples)
    split = compute_assessed_split(examples, "temporal", "en")
    alone = compute_blind_control(labelled.example_ids, labelled.texts, labelled.labels, labelled.groups, language="en")
    assert split.example_ids == labelled.example_ids
    assert split.control.scores is not None
    assert alone.scores is not None
    assert (split.control.scores == alone.scores).all()
    assert split.auroc.value == compute_metrics(alone.scores, labelled.labels)["auroc"]
    assert split.auroc.n == len(labelled)


@pytest.mark.parametrize("n", [240, 100])
def test_the_tables_yield_the_same_assessment(n: int) -> None:
    examples = made(n)
    split = compute_assessed_split(examples, "exchangeable", "en", matched=True)
    texts = select_evaluation_texts(examples, str.split)
    quality = measure_split_quality(texts, split, "en", run_id="run", most_per_side=60)
    scores = split.build_scores_table("made", "run")
    assert scores.schema == BLIND_SCORES.schema
    assert len(scores) == (len(split.example_ids) if n == 240 else 0)
    again = build_assessed_split_from_tables("exchangeable", True, quality, scores)
    assert (again.verdict, again.claim_level, again.auroc) == (split.verdict, split.claim_level, split.auroc)
    ids = split.example_ids[::-1]
    for one, other in ((again.align_control(ids), split.align_control(ids)),):
        assert (one.reason, one.scores is None) == (other.reason, other.scores is None)
        if one.scores is not None and other.scores is not None:
            assert one.method == other.method
            assert one.scores.tolist() == other.scores.tolist()


def test_scores_are_aligned_with_ids() -> None:
    split = compute_assessed_split(made(), "temporal", "en")
    ids = list(split.example_ids)
    forth, back = split.align_control(ids).scores, split.align_control(ids[::-1]).scores
    assert forth is not None
    assert back is not None
    assert (forth == back[::-1]).all()
    for others in (ids[:-1], [*ids[:-1], "another"], [*ids, "another"]):
        with pytest.raises(DataError, match="other texts"):
            split.align_control(others)


def test_the_design_limits_the_claim() -> None:
    examples = made()
    assert compute_assessed_split(examples, "randomised", "en").claim_level == "sound test"
    assert compute_assessed_split(examples, "temporal", "en").claim_level == "screening only"
    with pytest.raises(ConfigError, match="no benchmark design"):
        compute_assessed_split(examples, "secret", "en")


def test_sides_without_texts_are_omitted() -> None:
    assert group_places_by_side([1, 0, 1, 1]) == {"members": [0, 2, 3], "nonmembers": [1]}
    assert group_places_by_side([None]) == {"unlabelled": [0]}


def test_shares_by_name() -> None:
    assert compute_shares(["b", "a", "b", "b"]) == {"a": (1, 0.25), "b": (3, 0.75)}
    assert compute_shares([]) == {}


def test_dates_within_three_years_are_binned_by_month() -> None:
    assert bin_dates([date(2021, 1, 31), date(2023, 12, 1), None]) == ("month", ["2021-01", "2023-12", "undated"])
    assert bin_dates([date(2021, 1, 31), date(2024, 1, 1)]) == ("year", ["2021", "2024"])
    assert bin_dates([None]) == ("year", ["undated"])
