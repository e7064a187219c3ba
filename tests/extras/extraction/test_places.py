"""Starts of windows: by hand, and against a brute-force twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.extraction.memorisation import (
    SLACK,
    choose_fine_starts,
    tile_document,
)

THRESHOLD = math.log(0.001)


def test_tiles_by_hand() -> None:
    assert tile_document(np.arange(11), 3, 2) == [0, 2, 4, 6]
    # 12 tokens: the last window ends with the document and overlaps the one before it.
    assert tile_document(np.arange(12), 3, 2) == [0, 2, 4, 6, 7]
    assert tile_document(np.arange(5), 3, 2) == [0]
    assert tile_document(np.arange(4), 3, 2) == []


@given(st.integers(0, 200), st.integers(1, 9), st.integers(1, 9))
def test_every_token_after_the_first_prefix_is_in_a_suffix(tokens: int, prefix: int, suffix: int) -> None:
    starts = tile_document(np.arange(tokens), prefix, suffix)
    covered = {one + prefix + step for one in starts for step in range(suffix)}
    assert covered == (set(range(prefix, tokens)) if tokens >= prefix + suffix else set())
    # About (prefix + suffix) / suffix passes over the document, and one window at most.
    assert len(starts) <= tokens / suffix + 1


UNLIKELY = THRESHOLD - 25 * SLACK - 1


@pytest.mark.parametrize(
    ("halves", "expected"),
    [
        ([], []),
        ([(UNLIKELY, UNLIKELY)] * 2, []),
        # The second half of the first window: windows that begin up to half a suffix after it.
        ([(UNLIKELY, -1.0), (UNLIKELY, UNLIKELY)], [10, 20, 30, 40, 50]),
        # The first half of the second: those from there up to the second.
        ([(UNLIKELY, UNLIKELY), (-1.0, UNLIKELY), (UNLIKELY, UNLIKELY)], [50, 60, 70, 80, 90]),
        # A likely beginning has no window before it. After a likely end there may be windows.
        ([(-1.0, UNLIKELY), (UNLIKELY, UNLIKELY)], []),
        ([(UNLIKELY, UNLIKELY), (UNLIKELY, -1.0)], [110, 120, 130, 140, 150]),
    ],
)
def test_only_likely_halves_need_fine_windows(halves: list[tuple[float, float]], expected: list[int]) -> None:
    starts = [100 * number for number in range(len(halves))]
    half_later = [start + 50 for start in starts]
    assert choose_fine_starts(starts, half_later, np.array(halves).reshape(-1, 2), THRESHOLD, 25) == expected


@given(st.data(), st.integers(2, 6), st.integers(2, 5))
def test_no_likely_fine_window_is_missed(data: st.DataObject, suffix: int, count: int) -> None:
    """Try every fine window. Each token is one character, and its log-probability does not depend on other tokens."""
    prefix, tokens = suffix, suffix * (count + 1)
    values = data.draw(st.lists(st.sampled_from([-0.1, -3.0, -9.0]), min_size=tokens, max_size=tokens))

    def log_p(begin: int, end: int) -> float:
        return sum(values[begin:end])

    starts, middle = tile_document(np.arange(tokens), prefix, suffix), prefix + suffix // 2
    halves = [(log_p(one + prefix, one + middle), log_p(one + middle, one + prefix + suffix)) for one in starts]
    half_later = [one + suffix // 2 for one in starts]
    found = choose_fine_starts(starts, half_later, np.array(halves), THRESHOLD, suffix // 2, step=1)
    likely = {one for one in range(starts[-1]) if log_p(one + prefix, one + prefix + suffix) >= THRESHOLD}
    assert likely <= {*found, *starts}
