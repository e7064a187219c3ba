"""The headline detector, named before anything is computed.

What belongs here: one name or none, and why it. What does not: results (evaluate.py), and what they allow to say
(claims.py).

Of many detectors the best looks better than it is. So the first answer of a report, the highlighted texts and the
rates that are quoted are those of one detector at its default setting; the others stand beside it. Min-K%++ needs one
pass and no second model, and applies wherever the whole distribution is known. Of a user's own scores the user names
the detector; where nobody has named one of several, there is no headline, and what is said allows for all of them.
"""

from __future__ import annotations

from collections.abc import Collection

PREFERRED = ("min_k_plus_plus", "min_k", "loss")
"""In this order: the first that has scores. Min-K% and loss need the tokens' own log-probabilities alone."""


def headline_detector(scored: Collection[str], named: str | None = None) -> str | None:
    """The headline detector, out of those that have a score of some text: ``named`` where it was, else by default.

    None where it has no score, and where nobody named one of several that are none of the three. A detector that is
    alone is the headline: there was nothing to choose from.
    """
    if named is not None:
        return named if named in scored else None
    alone = next(iter(scored)) if len(set(scored)) == 1 else None
    return next((name for name in PREFERRED if name in scored), alone)
