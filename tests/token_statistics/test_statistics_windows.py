"""Windows over long texts, and batches under a budget."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.token_statistics.tokens import EncodedText, Window, cut_windows, iterate_batches


def encoded(n: int, *, start: bool, first_scored: int) -> EncodedText:
    ids = np.arange(n, dtype=np.int32)
    return EncodedText("0" * 64, ids, ids, ids + 1, 5 if start else None, first_scored)


@given(st.integers(0, 90), st.booleans(), st.integers(2, 20), st.data())
def test_every_token_is_scored_once_with_enough_context(n: int, start: bool, window: int, data: st.DataObject) -> None:
    text = encoded(n, start=start, first_scored=0 if start else 1)
    stride = data.draw(st.integers(1, max(1, window - 2)))
    parts = cut_windows(7, text, window, stride)
    scored = [token for part in parts for token in range(part.score_from, part.end)]
    assert scored == list(range(text.first_scored, n))
    if not scored:
        assert parts == []
        return
    assert parts[-1].end == n
    for part in parts:
        assert part.text == 7
        assert part.length <= window
        assert part.begin >= 0
        assert part.score_from < part.end
        # The model sees at least one token, its own start token perhaps, before the first scored one.
        assert part.score_from - part.begin + part.has_start_token >= 1
    for part in parts[1:]:
        assert part.length == window
        assert part.score_from - part.begin + part.has_start_token >= window - stride - 1
    if n + (text.start_token_id is not None) <= window:
        assert len(parts) == 1


def test_windows_by_hand() -> None:
    text = encoded(10, start=True, first_scored=0)
    assert cut_windows(0, text, 6, 2) == [
        Window(0, 0, 5, 0, has_start_token=True),
        Window(0, 2, 7, 5, has_start_token=True),
        Window(0, 4, 9, 7, has_start_token=True),
        Window(0, 5, 10, 9, has_start_token=True),
    ]
    bare = encoded(3, start=False, first_scored=1)
    assert cut_windows(0, bare, 6, 2) == [Window(0, 0, 3, 1, has_start_token=False)]


windows = st.lists(
    st.builds(
        lambda text, begin, size, start: Window(text, begin, begin + size, begin, start),
        st.integers(0, 50),
        st.integers(0, 5),
        st.integers(1, 30),
        st.booleans(),
    ),
    max_size=40,
)


@given(windows, st.integers(1, 120), st.booleans(), st.none() | st.integers(1, 30))
def test_batches_keep_all_windows_and_the_budget(
    given_windows: list[Window], budget: int, equal: bool, step: int | None
) -> None:
    formed = list(iterate_batches(given_windows, budget, equal_lengths=equal, length_step=step))
    flat = [window for batch in formed for window in batch]
    assert sorted(flat, key=repr) == sorted(given_windows, key=repr)
    assert [window.length for window in flat] == sorted((window.length for window in flat), reverse=True)
    for batch in formed:
        lengths = [window.length for window in batch]
        assert len(batch) == 1 or len(batch) * max(lengths) <= budget
        if equal:
            assert len(set(lengths)) == 1
        if step is not None:
            assert len({length > step for length in lengths}) == 1
    if not equal and step is None:
        for batch in formed[:-1]:
            assert (len(batch) + 1) * batch[0].length > budget, "a batch could have taken the next window"


@given(windows, st.integers(1, 60))
def test_a_large_batch_ends_before_a_much_shorter_window(given_windows: list[Window], min_tokens: int) -> None:
    budget = 60
    formed = list(iterate_batches(given_windows, budget, min_tokens=min_tokens))
    assert [window for batch in formed for window in batch] == [
        window for batch in iterate_batches(given_windows, budget) for window in batch
    ]
    for batch, following in pairwise(formed):
        longest = batch[0].length
        is_full = (len(batch) + 1) * longest > budget
        assert is_full or (len(batch) * longest >= min_tokens and following[0].length < 0.95 * longest)
    for batch in formed:
        for number, window in enumerate(batch):
            assert number * batch[0].length < min_tokens or window.length >= 0.95 * batch[0].length


def test_a_batch_below_the_minimum_takes_shorter_windows() -> None:
    lengths = (40, 39, 38, 37, 20)
    given_windows = [Window(text, 0, length, 0, has_start_token=False) for text, length in enumerate(lengths)]
    formed = iterate_batches(given_windows, 1000, min_tokens=120)
    assert [[window.length for window in batch] for batch in formed] == [[40, 39, 38], [37, 20]]


@given(windows, st.randoms(use_true_random=False))
def test_the_order_of_texts_does_not_change_the_batches(given_windows: list[Window], random: object) -> None:
    shuffled = list(given_windows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def lengths(of: list[Window]) -> list[list[tuple[int, int, int]]]:
        return [[(w.length, w.text, w.begin) for w in batch] for batch in iterate_batches(of, 60)]

    assert lengths(shuffled) == lengths(given_windows)
