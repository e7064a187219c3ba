"""Conclusions from windows, calculated by hand."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.extraction.memorisation import (
    MAX_GAP_CHARACTERS,
    Windows,
    conclude_memorisation,
    join_windows,
    windows_from_rows,
)
from audit_pipeline.statistics.power import compute_log_draws
from audit_pipeline.tables import EXTRACTION

TEXT = "four " * 20
NONE = np.zeros(9, dtype=np.bool_)
"""No window is set apart."""


def row(
    start: int, spans: list[tuple[int, int]], p: list[float], rank: list[int], mass: list[float]
) -> dict[str, object]:
    return {
        "key": str(start),
        "text_sha256": "",
        "start": start,
        "prefix_tokens": 2,
        "token_id": [0] * len(p),
        "argmax_id": [0] * len(p),
        "char_start": [begin for begin, _ in spans],
        "char_end": [end for _, end in spans],
        "logprob": np.log(p),
        "rank": rank,
        "log_mass_40": np.log(mass),
    }


def found(*rows: dict[str, object]) -> Windows:
    return windows_from_rows(pa.Table.from_pylist(list(rows), schema=EXTRACTION.schema))


def test_one_window_by_hand() -> None:
    windows = found(
        row(3, [(8, 10), (10, 14)], [0.25, 0.5], [0, 3], [0.5, 1.0]),
        row(9, [(12, 20)] * 2, [0.5, 0.5], [0, 40], [1, 1]),
    )
    assert (windows.start.tolist(), windows.begin.tolist(), windows.end.tolist()) == ([3, 9], [8, 12], [14, 20])
    assert np.exp(windows.log_p) == pytest.approx([0.125, 0.25])
    # Among the 40 best the first token has .25 of .5; a token outside of them is never drawn.
    assert np.exp(windows.log_p_top) == pytest.approx([0.25, 0.0])
    assert (windows.outside.tolist(), windows.matches.tolist(), windows.reproduced_greedily.tolist()) == (
        [0, 1],
        [1, 1],
        [False] * 2,
    )
    assert np.exp(windows.half) == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5]]))


def test_missing_statistics_of_an_interface_are_unknown() -> None:

    def without(given: dict[str, object], *columns: str) -> dict[str, object]:
        """Return a row of a back end that does not return these columns."""
        return {**given, **{column: [] for column in columns}}

    spans = [(8, 10), (10, 14)]
    whole = [
        row(3, spans, [0.25, 0.5], [0, 3], [0.5, 1.0]) | {"token_id": [7, 8], "argmax_id": [7, 9]},
        row(9, spans, [0.5, 0.9], [0, 0], [1, 1]) | {"token_id": [7, 8], "argmax_id": [7, 8]},
    ]
    every = found(*whole)
    own = found(*(without(one, "rank", "log_mass_40", "argmax_id") for one in whole))
    assert (own.log_p.tolist(), own.log_p_top.tolist()) == (every.log_p.tolist(),) * 2
    assert (own.matches, own.outside, own.top_is_known) == (None, None, False)
    assert own.reproduced_greedily.tolist() == [False, False], "not known to be"
    assert own.reproduced.tolist() == [True, True]
    said = conclude_memorisation(own, NONE[:2], TEXT[:30])
    assert said.greedy is None
    assert (said.reproduced, said.covered[0]) == (2, 6 / 30)

    ranked = found(*(without(one, "log_mass_40", "argmax_id") for one in whole))
    assert ranked.matches is not None
    assert ranked.outside is not None
    assert (ranked.matches.tolist(), ranked.outside.tolist(), ranked.top_is_known) == ([1, 2], [0, 0], False)
    named = found(*(without(one, "log_mass_40", "rank") for one in whole))
    assert named.matches is not None
    assert (named.matches.tolist(), named.outside, named.reproduced_greedily.tolist()) == ([1, 2], None, [False, True])

    both = join_windows(own, own)
    assert (len(both), both.matches, both.top_is_known) == (4, None, False)


def test_windows_of_a_part_of_a_table_are_those_of_its_rows() -> None:
    rows = [
        row(0, [(10, 15), (15, 20)], [0.5, 0.4], [0, 1], [1, 1]),
        row(7, [(20, 25)], [0.25], [2], [0.5]),
        row(9, [(25, 30), (30, 40)], [0.5, 0.25], [0, 0], [1, 1]),
    ]
    table = pa.Table.from_pylist(rows, schema=EXTRACTION.schema)
    part, own = windows_from_rows(table.slice(1, 2)), found(*rows[1:])
    assert part.log_p.tolist() == own.log_p.tolist()
    assert (part.begin.tolist(), part.tokens.tolist(), part.outside.tolist()) == ([20, 25], [1, 2], [0, 0])


def test_a_document_without_windows() -> None:
    windows = found()
    assert len(windows) == 0
    nothing = conclude_memorisation(windows, NONE[: len(windows)], TEXT[:30])
    assert (nothing.windows, nothing.covered, nothing.longest_run, nothing.strongest) == (0, (0.0,) * 4, 0, ())


def test_shares_of_characters_and_the_longest_run() -> None:
    sure, good, weak = [1.0, 1.0], [0.5, 0.4], [0.05, 0.05]
    windows = found(
        row(0, [(10, 15), (15, 20)], sure, [0, 0], [1, 1]),
        row(5, [(15, 20), (20, 25)], good, [0, 1], [1, 1]),
        row(40, [(50, 55), (55, 60)], weak, [0, 1], [1, 1]),
        row(60, [(70, 75), (75, 80)], [0.01, 0.01], [0, 1], [1, 1]),
    )
    result = conclude_memorisation(windows, NONE[: len(windows)], TEXT)
    # 10 to 25 is likely (1 and .2), 50 to 60 at .0025; of .5 and more only 10 to 20.
    assert result.covered == pytest.approx((0.25, 0.15, 0.15, 0.1))
    assert (result.greedy, result.longest_run, result.windows, result.characters) == (0.1, 15, 4, 100)
    assert result.longest_run_words == 3
    assert result.strongest == (0, 2, 3), "the second window overlaps the first"


def test_a_run_includes_short_gaps() -> None:
    sure = ([1.0, 1.0], [0, 0], [1.0, 1.0])
    windows = found(row(0, [(10, 15), (15, 20)], *sure), row(10, [(20 + MAX_GAP_CHARACTERS, 35), (35, 40)], *sure))
    apart = found(row(0, [(10, 15), (15, 20)], *sure), row(10, [(21 + MAX_GAP_CHARACTERS, 35), (35, 40)], *sure))
    assert conclude_memorisation(windows, NONE[: len(windows)], TEXT).longest_run == 30
    assert conclude_memorisation(apart, NONE[: len(apart)], TEXT).longest_run == 19 - MAX_GAP_CHARACTERS
    # The gap is in no suffix: it counts for no share.
    assert conclude_memorisation(windows, NONE[: len(windows)], TEXT).covered[0] == pytest.approx(
        (30 - MAX_GAP_CHARACTERS) / 100
    )


def test_excluded_windows_count_only_as_excluded() -> None:
    sure = ([1.0, 1.0], [0, 0], [1.0, 1.0])
    windows = found(row(0, [(10, 15), (15, 20)], *sure), row(20, [(40, 45), (45, 60)], *sure))
    result = conclude_memorisation(windows, np.array([True, False]), TEXT)
    assert (result.covered, result.greedy, result.covered_set_apart) == ((0.2,) * 4, 0.2, 0.1)
    assert (result.reproduced, result.set_apart, result.strongest, result.longest_run) == (1, 1, (1,), 20)


@given(st.floats(-25, -1e-6), st.floats(0.01, 0.99))
def test_the_number_of_draws_equals_the_formula(log_p: float, p: float) -> None:
    expected = max(1.0, math.log1p(-p) / math.log1p(-math.exp(log_p)))
    assert math.exp(compute_log_draws(log_p, p)) == pytest.approx(expected, rel=1e-9)


def test_the_number_of_draws_of_extreme_probabilities() -> None:
    assert compute_log_draws(-5000.0) == pytest.approx(5000.0 + math.log(math.log(2)))
    assert compute_log_draws(0.0) == 0.0
    assert compute_log_draws(-math.inf) == math.inf
