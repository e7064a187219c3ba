"""Features and folds equal those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import StratifiedGroupKFold

from audit_pipeline.splits.sklearn_equivalents import FastStratifiedGroupKFold, compute_tf_idf, count_terms

TEXTS = st.lists(st.text("abcé Z.\n", max_size=12), min_size=2, max_size=8)


@max_examples(60)
@given(TEXTS, st.randoms(use_true_random=False), st.integers(1, 12))
def test_features_equal_those_of_scikit_learn_to_the_last_bit(texts: list[str], chance: object, most: int) -> None:
    places = list(range(len(texts)))
    chance.shuffle(places)  # type: ignore[attr-defined]
    training, held_out = np.array(places[: len(texts) // 2 + 1]), np.array(places[len(texts) // 2 + 1 :], dtype=np.intp)
    vectoriser = TfidfVectorizer(token_pattern=r"\b\w+\b", ngram_range=(1, 2), sublinear_tf=True, max_features=most)
    terms_of = vectoriser.build_analyzer()
    found = compute_tf_idf(count_terms(texts, terms_of), training, held_out, most)
    if not any(terms_of(texts[place]) for place in training):
        assert found is None
        return
    assert found is not None
    wanted = [vectoriser.fit_transform([texts[place] for place in training])]
    wanted.append(vectoriser.transform([texts[place] for place in held_out]) if len(held_out) else wanted[0][:0])
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        # The order of the entries matters, too, because sums follow it.
        for name in ("indptr", "indices", "data"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


@max_examples(40)
@given(
    groups=st.lists(st.integers(0, 30), min_size=40, max_size=200),
    seed=st.integers(0, 5),
    one_label_a_group=st.booleans(),
    data=st.data(),
)
@pytest.mark.filterwarnings("ignore:The least populated class")
def test_folds_equal_those_of_scikit_learn(
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


def test_numpy_is_called_once_per_group(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    spread = np.std
    monkeypatch.setattr(np, "std", lambda *args, **kwargs: asked.append(1) or spread(*args, **kwargs))
    groups = np.arange(60)
    list(FastStratifiedGroupKFold(5, shuffle=True, random_state=0).split(groups, groups % 2, groups))
    # One call per group, and one call for the order of the groups.
    assert len(asked) == 61
