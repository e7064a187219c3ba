"""The detector that answers, chosen before anything is computed.

What belongs here: one name, and why it. What does not: results (evaluate.py), and what they allow to say (claims.py).

Of many detectors the best looks better than it is. So the first answer of a report, the highlighted texts and the
rates that are quoted are those of one detector at its default setting; the others stand beside it. Min-K%++ needs one
pass and no second model, and applies wherever the whole distribution is known.
"""

from __future__ import annotations

from collections.abc import Collection

PREFERRED = ("min_k_plus_plus", "min_k", "loss")
"""In this order: the first that has scores. Min-K% and loss need the tokens' own log-probabilities alone."""


def headline_detector(scored: Collection[str]) -> str | None:
    """The detector that answers, out of those that have a score of some text; None where there is none.

    Where none of the three is among them (a user's own), the first by name: that too is no choice by result.
    """
    return next((name for name in PREFERRED if name in scored), min(scored, default=None))
