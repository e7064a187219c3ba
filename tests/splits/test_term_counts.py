"""Terms that are counted once give the features that scikit-learn gives when it reads the texts of every fold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from audit_pipeline.splits.sklearn_equivalents import compute_tf_idf, count_terms

TEXTS = st.lists(st.text("abcé Z.\n", max_size=12), min_size=2, max_size=8)


@given(TEXTS, st.randoms(use_true_random=False), st.integers(1, 12))
def test_features_are_those_of_scikit_learn_to_the_last_bit(texts: list[str], chance: object, most: int) -> None:
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
        # The order of entries too: sums follow it.
        for name in ("indptr", "indices", "data"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()
