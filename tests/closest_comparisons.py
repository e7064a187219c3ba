"""A pytest plugin that records how much of its tolerance each comparison of numbers used.

A comparison that uses nearly all of its tolerance on this processor fails on another one. The plugin writes one JSON
line per test to the file that CLOSEST_COMPARISONS names: the test, and the largest share of a tolerance that it used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

OUTPUT_VARIABLE = "CLOSEST_COMPARISONS"

_COARSEST_ROUNDING = 1e-3

_largest_shares: dict[str, float] = {}


def record_share(actual: object, expected: object, tolerance: object) -> None:
    """Record the largest ratio of a difference to its tolerance, for the test that runs now."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    try:
        numbers = np.asarray(actual, dtype=np.float64)
        others = np.asarray(expected, dtype=np.float64)
        limits = np.asarray(tolerance, dtype=np.float64)
    except (TypeError, ValueError):
        return
    # Numbers that are equal need no tolerance; infinities and NaN have none.
    compared = np.isfinite(numbers) & np.isfinite(others) & (numbers != others) & (limits > 0)
    # A coarser tolerance allows for figures of a table or for chance, not for rounding.
    compared &= limits <= _COARSEST_ROUNDING * np.maximum(1.0, np.abs(others))
    if compared.any():
        differences = np.abs(np.where(compared, numbers, 0.0) - np.where(compared, others, 0.0))
        share = float((differences / np.where(compared, limits, 1.0)).max())
        _largest_shares[test] = max(share, _largest_shares.get(test, 0.0))


def _wrap_numpy(compare: Callable[..., None]) -> Callable[..., None]:
    def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, **options: Any) -> None:
        compare(actual, desired, rtol=rtol, atol=atol, **options)
        with np.errstate(invalid="ignore"):  # 0 times infinity
            record_share(actual, desired, atol + rtol * np.abs(np.asarray(desired, dtype=np.float64)))

    return assert_allclose


def _wrap_torch(compare: Callable[..., None]) -> Callable[..., None]:
    def assert_close(actual: Any, expected: Any, *, rtol: Any = None, atol: Any = None, **options: Any) -> None:
        compare(actual, expected, rtol=rtol, atol=atol, **options)
        if isinstance(expected, torch.Tensor) and rtol is not None:
            numbers = actual.detach().double().cpu().numpy()
            others = expected.detach().double().cpu().numpy()
            with np.errstate(invalid="ignore"):  # 0 times infinity
                record_share(numbers, others, atol + rtol * np.abs(others))

    return assert_close


def _wrap_approx(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def equal(approximate: Any, actual: Any) -> bool:
        is_equal = compare(approximate, actual)
        expected = approximate.expected
        if is_equal and isinstance(expected, float | int | np.number) and np.isfinite(expected):
            record_share(actual, expected, approximate.tolerance)
        return is_equal

    return equal


def pytest_configure() -> None:
    """Wrap the three ways in which the tests compare numbers."""
    np.testing.assert_allclose = _wrap_numpy(np.testing.assert_allclose)
    torch.testing.assert_close = _wrap_torch(torch.testing.assert_close)
    approximate_number = type(pytest.approx(1.0))
    approximate_number.__eq__ = _wrap_approx(approximate_number.__eq__)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Append this process's shares to the file; each worker of pytest-xdist is a process."""
    with Path(os.environ[OUTPUT_VARIABLE]).open("a", encoding="utf-8") as file:
        for test, share in _largest_shares.items():
            file.write(json.dumps({"test": test, "share": share}) + "\n")
