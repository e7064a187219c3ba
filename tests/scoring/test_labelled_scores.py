"""The stored scores of labelled texts, and their AUROC."""

from __future__ import annotations

import numpy as np
import pytest

from audit_pipeline.readers.text_rows import TextRow
from audit_pipeline.scoring.file import LabelledScores
from audit_pipeline.statistics.intervals import measure_auroc_of_scores

ROUNDING = 200 * np.finfo(np.float64).eps
"""Several columns are summed in another order than one: 200 roundings at most, in a sum of 40, a root and a logit."""
SETTINGS = [("loss", "{}"), ("min_k", '{"k":0.1}'), ("min_k", '{"k":0.2}')]


def rows(labels: list[object]) -> list[TextRow]:
    return [
        TextRow(f"t:{n}", 10 + n, f"text {n}", {} if label == "absent" else {"label": label})
        for n, label in enumerate(labels)
    ]


def made(count: int) -> tuple[LabelledScores, np.ndarray, list[int]]:
    random = np.random.default_rng(7)
    labels = random.integers(0, 2, count).tolist()
    scores = random.normal(size=(count, 3)) + np.array(labels)[:, None]
    kept = LabelledScores(SETTINGS, "label")
    for start in range(0, count, 7):
        kept.add(rows(labels)[start : start + 7], scores[start : start + 7])
    return kept, scores, labels


def test_defaults_are_kept_and_other_settings_are_not() -> None:
    kept, scores, labels = made(40)
    found = kept.compute_separations()
    assert [(one.detector, one.parameters) for one in found] == [SETTINGS[0], SETTINGS[2]]
    for one, column in zip(found, (0, 2), strict=True):
        groups = [str(10 + n) for n in range(40)]
        alone = measure_auroc_of_scores(scores[:, column], labels, groups).interval
        assert (one.interval.low, one.interval.high) == pytest.approx((alone.low, alone.high), abs=ROUNDING)
    assert [(one.n_members, one.n_nonmembers) for one in found] == [(sum(labels), 40 - sum(labels))] * 2


def test_parameters_of_the_user_are_the_default() -> None:
    kept = LabelledScores(SETTINGS, "label", {"min_k": {"k": 0.1}})
    kept.add(rows([1, 0, 1, 0]), np.array([[1.0, 4.0, 0.0], [2.0, 3.0, 0.0], [3.0, 2.0, 0.0], [4.0, 1.0, 0.0]]))
    assert [(one.parameters, one.auroc) for one in kept.compute_separations()] == [("{}", 0.25), ('{"k":0.1}', 0.75)]


def test_texts_without_a_label_or_a_score_are_skipped() -> None:
    kept = LabelledScores([("loss", "{}")], "label")
    kept.add(rows([1, None, "absent", "odd", 0, 1, 0]), np.array([[3.0], [9.0], [9.0], [9.0], [1.0], [np.nan], [2.0]]))
    [one] = kept.compute_separations()
    assert (one.auroc, one.n_members, one.n_nonmembers) == (1.0, 1, 2)
    assert (kept.labels.known, kept.labels.not_understood) == ({1: 2, 0: 2}, 1)
    none = LabelledScores([("loss", "{}")], "label")
    none.add(rows([1, 0]), np.array([[3.0], [np.nan]]))
    assert none.compute_separations() == []


def test_texts_of_a_named_group_count_together() -> None:
    _, scores, labels = made(40)
    groups = [None if n % 4 else f"book {n % 3}" for n in range(40)]
    kept = LabelledScores(SETTINGS, "label")
    texts = [TextRow(f"t:{n}", n, "", {"label": labels[n], "group": groups[n]}) for n in range(40)]
    kept.add(texts, scores)
    names = [group or f"text {n}" for n, group in enumerate(groups)]
    alone = measure_auroc_of_scores(scores[:, 0], labels, names).interval
    found = kept.compute_separations()[0].interval
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high), abs=ROUNDING)
