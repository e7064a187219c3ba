"""Documents against held-out ones: worked out by hand, and valid where nothing is known."""

from __future__ import annotations

import math

import numpy as np

from audit_pipeline.extras.extraction.result_tables import HELD_OUT_TEST, compare_each_with_held_out


def build_test(*values: float | None) -> dict[str, float | None]:
    return dict(zip(HELD_OUT_TEST, values, strict=True))


NONE = build_test(None, None, None, None)


def test_p_values_by_hand() -> None:
    held_out = [np.array([-9.0, -5.0]), np.array([-7.0, -8.0]), np.array([-6.0, -6.5]), np.array([])]
    strong, middling, short = compare_each_with_held_out(
        [np.array([-4.0, -9.0]), np.array([-8.0, -5.5]), np.array([])], held_out
    )
    # Stronger than all three: 1 / 4; one of three is at least as strong: 2 / 4; q by Benjamini and Hochberg.
    assert (strong, middling, short) == (build_test(2, 3, 0.25, 0.5), build_test(2, 3, 0.5, 0.5), NONE)


def test_as_many_windows_on_both_sides() -> None:
    """Nineteen held-out documents of three windows, whose middle one is the strongest, and one long audited one."""
    held_out = [np.array([-9.0, -1.0, -9.0])] * 19
    long = np.array([-8.0, -2.0, -8.0, -2.0, -8.0])
    [test] = compare_each_with_held_out([long], held_out)
    # Of five, three spread evenly: the first, the third and the last.
    assert test == build_test(3, 19, 1.0, 1.0)
    # Of one window, the first of each held-out document is compared.
    [one] = compare_each_with_held_out([np.array([-8.5])], held_out)
    assert one == build_test(1, 19, 0.05, 0.05)


def test_p_values_are_valid_where_no_document_was_read() -> None:
    generator = np.random.default_rng(0)
    p_values = []
    for _ in range(400):
        documents = [generator.normal(-60, 8, size=generator.integers(5, 40)) for _ in range(30)]
        [test] = compare_each_with_held_out(documents[:1], documents[1:])
        p_values.append(test["p_value"])
    for level in (0.05, 0.1, 0.25, 0.5):
        share = np.mean(np.array(p_values) <= level)
        # Three standard errors above the level at most.
        assert share <= level + 3 * math.sqrt(level * (1 - level) / 400)


def test_a_document_all_of_whose_windows_are_set_apart_is_the_weakest() -> None:
    held_out = [np.array([-9.0]), np.array([-np.inf])]
    [test] = compare_each_with_held_out([np.array([-np.inf])], held_out)
    assert test == build_test(1, 2, 1.0, 1.0)


def test_nothing_to_compare_with() -> None:
    assert compare_each_with_held_out([np.array([-1.0])], [np.array([])]) == [NONE]
