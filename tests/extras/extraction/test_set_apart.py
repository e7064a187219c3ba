"""Windows that are no evidence of memorisation."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.extraction.window_exclusions import (
    COMMON_RUN,
    MIN_BOILERPLATE_DOCUMENTS,
    compute_run_length,
    explain_set_apart,
    find_boilerplate,
    is_boilerplate,
    is_prefix_repeated,
)

RUN = np.arange(COMMON_RUN)
OTHER = np.arange(1000, 1000 + 40)


def joined(*parts: object) -> np.ndarray:
    return np.concatenate([np.atleast_1d(np.asarray(part)) for part in parts])


def test_a_suffix_that_repeats_its_prefix() -> None:
    assert is_prefix_repeated(joined(7, RUN, 8), joined(9, RUN, OTHER[:9]))
    assert not is_prefix_repeated(joined(7, RUN, 8), joined(9, RUN[:-1], OTHER[:9]))
    # A refrain of three tokens.
    refrain = np.tile([5, 6, 7], 17)
    assert is_prefix_repeated(refrain[:50], refrain[1:])
    # Also behind a prefix that is shorter than a run.
    assert is_prefix_repeated(np.array([5] * 10), np.array([5] * 50))
    assert not is_prefix_repeated(OTHER[:10], joined(OTHER[10:], RUN))
    # A suffix of fewer tokens than a run has to stand there whole.
    assert is_prefix_repeated(joined(OTHER, 1, 2, 3), np.array([1, 2, 3]))
    assert not is_prefix_repeated(joined(OTHER, 1, 2, 4), np.array([1, 2, 3]))


def test_text_of_three_documents_is_boilerplate() -> None:
    licence = np.arange(500, 500 + 30)
    own = [np.arange(2000 + 100 * number, 2050 + 100 * number) for number in range(4)]
    documents = [joined(one, licence, one[::-1]) for one in own[:MIN_BOILERPLATE_DOCUMENTS]]
    known = find_boilerplate(documents, COMMON_RUN)
    assert len(known) == len(licence) - COMMON_RUN + 1
    assert is_boilerplate(joined(own[0][:30], licence[5 : 5 + COMMON_RUN]), known)
    assert not is_boilerplate(joined(own[0][:30], licence[5 : 4 + COMMON_RUN], 0), known)
    # In two documents, or three times in one, it is theirs.
    assert not len(find_boilerplate(documents[:2], COMMON_RUN))
    assert not len(find_boilerplate([joined(licence, licence, licence), own[0], own[1]], COMMON_RUN))


def test_repetition_needs_no_other_documents() -> None:
    def ask() -> np.ndarray:
        pytest.fail("the documents are looked through for nothing")

    assert explain_set_apart(RUN, RUN, ask) == "repeats its prefix"
    known = find_boilerplate([OTHER] * MIN_BOILERPLATE_DOCUMENTS, COMMON_RUN)
    assert explain_set_apart(RUN, OTHER, lambda: known) == "in several documents"
    assert explain_set_apart(OTHER, RUN, lambda: known) is None


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=12), max_size=5),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
)
def test_boilerplate_equals_counting(documents: list[list[int]], suffix: list[int]) -> None:
    length = compute_run_length(len(suffix))
    runs = Counter(
        run
        for document in documents
        for run in {tuple(document[at : at + length]) for at in range(len(document) - length + 1)}
    )
    expected = runs[tuple(suffix)] >= MIN_BOILERPLATE_DOCUMENTS
    tokens = [np.array(document, dtype=np.int32) for document in documents]
    assert is_boilerplate(np.array(suffix, dtype=np.int32), find_boilerplate(tokens, length)) is expected
