"""Where windows begin: by hand, and against a brute-force twin."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extraction.conclusions import (
    SLACK,
    CoarseWindow,
    choose_fine_starts,
    list_grid_starts,
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
def test_every_token_behind_the_first_prefix_is_in_a_suffix(tokens: int, prefix: int, suffix: int) -> None:
    starts = tile_document(np.arange(tokens), prefix, suffix)
    covered = {one + prefix + step for one in starts for step in range(suffix)}
    assert covered == (set(range(prefix, tokens)) if tokens >= prefix + suffix else set())
    # About (prefix + suffix) / suffix passes over the document, and one window at most.
    assert len(starts) <= tokens / suffix + 1


def test_the_grid() -> None:
    assert list(list_grid_starts(25, 10)) == [0, 10, 20]


def coarse(*halves: tuple[float, float]) -> list[CoarseWindow]:
    """Windows every 100 characters, half a suffix behind each 50."""
    return [CoarseWindow(100 * number, 100 * number + 50, *half) for number, half in enumerate(halves)]


def test_only_the_halves_that_are_likely_call_for_fine_windows() -> None:
    unlikely = THRESHOLD - 25 * SLACK - 1
    assert choose_fine_starts(coarse((unlikely, unlikely), (unlikely, unlikely)), THRESHOLD, 25) == []
    # The second half of the first window: windows that begin up to half a suffix behind it.
    assert choose_fine_starts(coarse((unlikely, -1.0), (unlikely, unlikely)), THRESHOLD, 25) == [10, 20, 30, 40, 50]
    # The first half of the second: those from there up to the second.
    likely = coarse((unlikely, unlikely), (-1.0, unlikely), (unlikely, unlikely))
    assert choose_fine_starts(likely, THRESHOLD, 25) == [50, 60, 70, 80, 90]
    # What is likely at the beginning has no window before it; at the end there may be room for some behind the last.
    assert choose_fine_starts(coarse((-1.0, unlikely), (unlikely, unlikely)), THRESHOLD, 25) == []
    assert choose_fine_starts(coarse((unlikely, unlikely), (unlikely, -1.0)), THRESHOLD, 25) == [
        110,
        120,
        130,
        140,
        150,
    ]


@given(st.data(), st.integers(2, 6), st.integers(2, 5))
def test_no_likely_fine_window_is_missed_where_tokens_are_as_likely_behind_any_prefix(
    data: st.DataObject, suffix: int, count: int
) -> None:
    """One character a token, whose log-probability depends on nothing else; every fine window is tried."""
    prefix, tokens = suffix, suffix * (count + 1)
    values = data.draw(st.lists(st.sampled_from([-0.1, -3.0, -9.0]), min_size=tokens, max_size=tokens))

    def log_p(begin: int, end: int) -> float:
        return sum(values[begin:end])

    starts, middle = tile_document(np.arange(tokens), prefix, suffix), prefix + suffix // 2
    halves = [(log_p(one + prefix, one + middle), log_p(one + middle, one + prefix + suffix)) for one in starts]
    windows = [CoarseWindow(one, one + suffix // 2, *half) for one, half in zip(starts, halves, strict=True)]
    found = choose_fine_starts(windows, THRESHOLD, suffix // 2, step=1)
    likely = {one for one in range(starts[-1]) if log_p(one + prefix, one + prefix + suffix) >= THRESHOLD}
    assert likely <= {*found, *starts}
