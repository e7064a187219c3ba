"""How many examples a property test draws: a quarter of them in ``make test``, all of them in ``make test-all``.

The profile is the value of ``HYPOTHESIS_PROFILE``, quick unless it is set.
"""

from __future__ import annotations

import os
from typing import Any

import hypothesis

FULL = os.environ.get("HYPOTHESIS_PROFILE", "quick") == "full"
_EXAMPLES = 100
_QUICK_SHARE = 4
_FEWEST = 5


def max_examples(full: int, **options: Any) -> hypothesis.settings:
    """Settings of a property test that draws ``full`` examples in ``make test-all``, and a quarter in ``make test``."""
    quick = min(full, max(full // _QUICK_SHARE, _FEWEST))
    return hypothesis.settings(max_examples=full if FULL else quick, **options)


def load_profile() -> None:
    """Set what holds for every property test, before any is imported.

    No time-out per example: how long one takes says more of what else the machine does.
    """
    name = "full" if FULL else "quick"
    hypothesis.settings.register_profile(name, max_examples(_EXAMPLES, deadline=None))
    hypothesis.settings.load_profile(name)
