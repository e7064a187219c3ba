"""A pytest plugin that records how much of its tolerance each comparison of numbers used.

A comparison that uses nearly all of its tolerance on this processor fails on another one. The plugin writes one JSON
line per test to the file that CLOSEST_COMPARISONS names: the test, and the largest share of a tolerance that it used.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

OUTPUT_VARIABLE = "CLOSEST_COMPARISONS"
_COARSEST_ROUNDING = 1e-3
_largest_shares: dict[str, float] = {}


def record_share(actual: Any, expected: Any, atol: float, rtol: float = 0.0) -> None:
    """Record the largest ratio of a difference to its tolerance, for the test that runs now."""
    try:
        numbers, others = (
            np.asarray(side.detach().cpu() if isinstance(side, torch.Tensor) else side, dtype=np.float64)
            for side in (actual, expected)
        )
    except (TypeError, ValueError):
        return
    with np.errstate(invalid="ignore"):  # 0 times infinity, infinity minus infinity
        limits, differences = atol + rtol * np.abs(others), np.abs(numbers - others)
    # Equal numbers, infinities and NaN use no tolerance. A coarser tolerance allows for chance, not for rounding.
    compared = np.isfinite(differences) & (differences > 0) & (limits > 0)
    compared &= limits <= _COARSEST_ROUNDING * np.maximum(1.0, np.abs(others))
    if compared.any():
        share = float((differences[compared] / np.broadcast_to(limits, differences.shape)[compared]).max())
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
        _largest_shares[test] = max(share, _largest_shares.get(test, 0.0))


def pytest_configure() -> None:
    """Wrap the three functions by which the tests compare numbers."""
    allclose, close = np.testing.assert_allclose, torch.testing.assert_close
    approximate_number: Any = type(pytest.approx(1.0))
    equals = approximate_number.__eq__

    def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, **options: Any) -> None:
        allclose(actual, desired, rtol=rtol, atol=atol, **options)
        record_share(actual, desired, atol, rtol)

    def assert_close(actual: Any, expected: Any, *, rtol: Any = None, atol: Any = None, **options: Any) -> None:
        close(actual, expected, rtol=rtol, atol=atol, **options)
        if rtol is not None:
            record_share(actual, expected, atol, rtol)

    def is_equal(approximate: Any, actual: Any) -> bool:
        result: bool = equals(approximate, actual)
        if result and isinstance(approximate.expected, float | int | np.number):
            record_share(actual, approximate.expected, approximate.tolerance)
        return result

    np.testing.assert_allclose = assert_allclose
    torch.testing.assert_close = assert_close
    approximate_number.__eq__ = is_equal


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Append the shares of this process to the file. Each worker of pytest-xdist is a process."""
    with Path(os.environ[OUTPUT_VARIABLE]).open("a", encoding="utf-8") as file:
        for test, share in _largest_shares.items():
            file.write(json.dumps({"test": test, "share": share}) + "\n")
