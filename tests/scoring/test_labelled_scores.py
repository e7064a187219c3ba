"""What is kept of labelled texts, and the AUROC from it."""

from __future__ import annotations

import numpy as np
import pytest

from audit_pipeline.fetch.rows import TextRow
from audit_pipeline.metrics.delong import auroc_with_interval
from audit_pipeline.metrics.intervals import metric_intervals
from audit_pipeline.scoring import file
from audit_pipeline.scoring.file import LabelledScores, Separation

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
        assert one.interval == metric_intervals(scores[:, column], labels, groups)["auroc"]
    assert [(one.n_members, one.n_nonmembers) for one in found] == [(sum(labels), 40 - sum(labels))] * 2


def test_what_the_user_has_set_is_the_default() -> None:
    kept = LabelledScores(SETTINGS, "label", {"min_k": {"k": 0.1}})
    kept.add(rows([1, 0, 1, 0]), np.array([[1.0, 4.0, 0.0], [2.0, 3.0, 0.0], [3.0, 2.0, 0.0], [4.0, 1.0, 0.0]]))
    assert [(one.parameters, one.auroc) for one in kept.compute_separations()] == [("{}", 0.25), ('{"k":0.1}', 0.75)]


def test_texts_without_a_label_or_a_score_are_left_out() -> None:
    kept = LabelledScores([("loss", "{}")], "label")
    kept.add(rows([1, None, "absent", "odd", 0, 1, 0]), np.array([[3.0], [9.0], [9.0], [9.0], [1.0], [np.nan], [2.0]]))
    [one] = kept.compute_separations()
    assert (one.auroc, one.n_members, one.n_nonmembers) == (1.0, 1, 2)
    assert (kept.labels.known, kept.labels.not_understood) == ({1: 2, 0: 2}, 1)
    none = LabelledScores([("loss", "{}")], "label")
    none.add(rows([1, 0]), np.array([[3.0], [np.nan]]))
    assert none.compute_separations() == []


def test_more_texts_than_can_be_resampled_have_delongs_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, scores, labels = made(40)
    monkeypatch.setattr(file, "FEW_ENOUGH_TO_RESAMPLE", 39)
    members = sum(labels)
    auroc, interval = auroc_with_interval(scores[:, 0], labels)
    assert kept.compute_separations()[0] == Separation("loss", "{}", auroc, interval, members, 40 - members)
    assert (
        kept.compute_separations()[0].interval
        != metric_intervals(scores[:, 0], labels, list(map(str, range(40))))["auroc"]
    )
