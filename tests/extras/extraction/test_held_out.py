"""The test of documents against held-out documents: by hand, and valid under the null."""

from __future__ import annotations

import math

import numpy as np

from audit_pipeline.extras.extraction.result_tables import HELD_OUT_TEST, compare_log_p_with_held_out


def build_test(*values: float | None) -> dict[str, float | None]:
    return dict(zip(HELD_OUT_TEST, values, strict=True))


NONE = build_test(None, None, None, None)


def test_p_values_by_hand() -> None:
    held_out = [np.array([-9.0, -5.0]), np.array([-7.0, -8.0]), np.array([-6.0, -6.5]), np.array([])]
    strong, middling, short = compare_log_p_with_held_out(
        [np.array([-4.0, -9.0]), np.array([-8.0, -5.5]), np.array([])], held_out
    )
    # Stronger than all three: 1 / 4; one of three is at least as strong: 2 / 4; q by Benjamini and Hochberg.
    assert (strong, middling, short) == (build_test(2, 3, 0.25, 0.5), build_test(2, 3, 0.5, 0.5), NONE)


def test_both_sides_contribute_equally_many_windows() -> None:
    """Compare a long document with 19 held-out documents of three windows. Their middle window is the strongest."""
    held_out = [np.array([-9.0, -1.0, -9.0])] * 19
    long = np.array([-8.0, -2.0, -8.0, -2.0, -8.0])
    [test] = compare_log_p_with_held_out([long], held_out)
    # Three of five windows are compared: the first, the third and the last.
    assert test == build_test(3, 19, 1.0, 1.0)
    # For one window, the first window of each held-out document is compared.
    [one] = compare_log_p_with_held_out([np.array([-8.5])], held_out)
    assert one == build_test(1, 19, 0.05, 0.05)


def test_p_values_are_valid_under_the_null() -> None:
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(400):
        documents = [generator.normal(-60, 8, size=generator.integers(5, 40)) for _ in range(30)]
        [test] = compare_log_p_with_held_out(documents[:1], documents[1:])
        p_values.append(test["p_value"])
    for level in (0.05, 0.1, 0.25, 0.5):
        share = np.mean(np.array(p_values) <= level)
        # Three standard errors above the level at most.
        assert share <= level + 3 * math.sqrt(level * (1 - level) / 400)


def test_a_document_with_only_excluded_windows_is_the_weakest() -> None:
    held_out = [np.array([-9.0]), np.array([-np.inf])]
    [test] = compare_log_p_with_held_out([np.array([-np.inf])], held_out)
    assert test == build_test(1, 2, 1.0, 1.0)


def test_no_held_out_windows_give_no_test() -> None:
    assert compare_log_p_with_held_out([np.array([-1.0])], [np.array([])]) == [NONE]
