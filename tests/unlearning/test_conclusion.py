"""What a comparison comes to: the right words for what was forgotten, what only looks so, and what never was known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import pytest
from made_values import SIDE, model, texts

from audit_pipeline.unlearning.compared import compare_texts
from audit_pipeline.unlearning.conclusion import STATED_IN_WORDS, Conclusion, Outcome, conclude

Model = Mapping[str, np.ndarray]
KNOWN = model(1, known=2.0, spoken=0.9)
SILENCED = model(2, known=2.0, spoken=0.3)
NEVER = model(3, known=0.0)
LEFT_OVER = model(12, known=0.0, spoken=0.4)
PUSHED = model(4, known=-2.0, spoken=0.05)
RETRAINED = model(5, known=0.0)


def concluded(
    before: Model, after: Model, retrained: Model | None = None, threshold: float | None = -3.2
) -> Conclusion:
    also = {} if retrained is None else {"retrained": retrained}
    rows = [asdict(row) for row in compare_texts(texts(threshold, before=before, after=after, **also))]
    return conclude(rows, before="base", after="edited")


@pytest.mark.parametrize("retrained", [None, RETRAINED], ids=["stated", "retrained"])
@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (KNOWN, NEVER, "forgotten"),
        (KNOWN, LEFT_OVER, "partly forgotten"),
        (KNOWN, SILENCED, "only looks forgotten"),
        (KNOWN, PUSHED, "over-forgotten"),
        (KNOWN, KNOWN, "still known"),
        (NEVER, model(6, known=0.0), "never known"),
        (NEVER, PUSHED, "never known"),
    ],
)
def test_the_outcome_follows_from_what_the_model_still_tells(
    before: Model, after: Model, outcome: Outcome, retrained: Model | None
) -> None:
    found = concluded(before, after, retrained)
    assert found.outcome == outcome
    assert "edited" in found.headline
    told = " ".join(found.explanation)
    assert (STATED_IN_WORDS in told) == (retrained is None)
    assert ("Forget quality" in told) == (retrained is not None)
    assert "0: as in the reference" in told
    assert "Suspicious" in told


def test_texts_as_likely_as_held_out_ones_may_still_not_be_as_the_retrained_model_has_them() -> None:
    """Half of them known as before, half pushed far down: on average nobody can tell, one by one anybody can."""
    push = np.repeat([3.0, -3.0, 0.0, 0.0], SIDE // 2)
    half = {
        name: values + push * (name in ("mean_log_probability", "min_40", "min_k")) for name, values in NEVER.items()
    }
    assert concluded(KNOWN, half).outcome == "forgotten", "PrivLeak alone does not see it"
    found = concluded(KNOWN, half, RETRAINED)
    assert found.outcome == "undetermined"
    assert any("not as likely as in the retrained model" in one for one in found.explanation)


def test_what_the_retrained_model_says_more_of_is_nothing_left_over() -> None:
    """The texts to be forgotten may be easier to say than held-out ones for whoever never read them."""
    easier = model(8, known=0.0, spoken=0.4)
    assert concluded(KNOWN, LEFT_OVER, easier).outcome == "forgotten"


def test_too_few_texts_settle_nothing() -> None:
    rows = [asdict(row) for row in compare_texts(texts(before=KNOWN, after=NEVER))]
    for row in rows:
        if row["metric"] == "privleak" and row["role"] == "after":
            row.update(ci_low=None, ci_high=None, method="no interval: all members are of one group")
    found = conclude(rows, before="base", after="edited")
    assert found.outcome == "undetermined"
    assert "Nothing follows without an interval (no interval: all members are of one group)." in found.explanation


def test_without_a_threshold_the_count_is_marked() -> None:
    told = " ".join(concluded(KNOWN, SILENCED, threshold=None).explanation)
    assert "no thresholds were chosen" in told
    assert "Unchanged may mean never known." in told
