"""Folds by group are those that scikit-learn draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from audit_pipeline.splits.sklearn_equivalents import FastStratifiedGroupKFold


@given(
    groups=st.lists(st.integers(0, 30), min_size=40, max_size=200),
    seed=st.integers(0, 5),
    one_label_a_group=st.booleans(),
    data=st.data(),
)
@pytest.mark.filterwarnings("ignore:The least populated class")
def test_folds_are_those_of_scikit_learn(
    groups: list[int], seed: int, one_label_a_group: bool, data: st.DataObject
) -> None:
    groups = [*range(5), *groups]
    drawn = data.draw(st.lists(st.integers(0, 1), min_size=len(groups), max_size=len(groups)))
    labels = np.array([group % 2 for group in groups] if one_label_a_group else [0] * 5 + [1] * 5 + drawn[10:])
    expected = StratifiedGroupKFold(n_splits=5, shuffle=True, random_state=seed).split(groups, labels, groups)
    found = FastStratifiedGroupKFold(5, shuffle=True, random_state=seed).split(groups, labels, groups)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_numpy_is_asked_once_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    spread = np.std
    monkeypatch.setattr(np, "std", lambda *args, **kwargs: asked.append(1) or spread(*args, **kwargs))
    groups = np.arange(60)
    list(FastStratifiedGroupKFold(5, shuffle=True, random_state=0).split(groups, groups % 2, groups))
    # Once a group, and once for the order of all.
    assert len(asked) == 61
