"""What a comparison comes to: the right words for what was forgotten, what only looks so, and what never was known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from typing import get_args

import numpy as np
import pytest
from made_values import SIDE, compare, model

from audit_pipeline.extras.unlearning.comparison_rows import (
    ComparedValues,
    ReproducedDocuments,
    compare_documents,
    find_still_reproduced,
)
from audit_pipeline.extras.unlearning.conclusion import STATED_REFERENCE_NOTE, Conclusion, Outcome, conclude_unlearning

Model = Mapping[str, np.ndarray]
KNOWN = model(1, known=2.0, spoken=0.9)
SILENCED = model(2, known=2.0, spoken=0.3)
NEVER = model(3, known=0.0)
LEFT_OVER = model(12, known=0.0, spoken=0.4)
PUSHED = model(4, known=-2.0, spoken=0.05)
RETRAINED = model(5, known=0.0)
DOCUMENTS = 12
Spoken = tuple[float, float]
"""Of documents the share of characters that a model gives, and the share with a passage that it reproduces."""


def concluded(
    before: Model,
    after: Model,
    retrained: Model | None = None,
    threshold: float | None = -3.2,
    documents: ComparedValues | None = None,
    privleak: Mapping[str, tuple[float, float, float]] | None = None,
    reproduced: Sequence[str] = (),
) -> Conclusion:
    """``reproduced``: the documents that are still reproduced, of 140.

    ``privleak``: a value and its interval in the place of what the model's scores give, by role."""
    also = {} if retrained is None else {"retrained": retrained}
    found = [*compare(threshold, before=before, after=after, **also)]
    found += [] if documents is None else compare_documents(documents)
    if reproduced:
        names = [*reproduced, *(f"document {number}" for number in range(len(reproduced), 140))]
        found.append(find_still_reproduced(ReproducedDocuments(names, names, np.arange(140) < len(reproduced), None)))
    rows = [asdict(row) for row in found]
    for role, numbers in (privleak or {}).items():
        (row,) = (row for row in rows if (row["metric"], row["role"]) == ("privleak", role))
        row.update(zip(("value", "ci_low", "ci_high"), numbers, strict=True))
    return conclude_unlearning(rows, before="base", after="edited")


def extracted(before: Spoken, after: Spoken) -> ComparedValues:
    """DOCUMENTS to be forgotten with these shares covered and passages reproduced; of as many held-out ones nothing."""
    forget = np.arange(2 * DOCUMENTS) < DOCUMENTS
    spread = np.tile(np.linspace(-0.1, 0.1, DOCUMENTS), 2)

    def of(said: Spoken) -> Model:
        coverage, reproduced = said
        return {
            "verbatim_coverage": forget * (coverage + spread * (coverage > 0)),
            "verbatim_log_p": np.full(2 * DOCUMENTS, -9.0),
            "verbatim_reproduced": forget * reproduced,
        }

    groups = [f"document {place}" for place in range(2 * DOCUMENTS)]
    return ComparedValues(forget, groups, {"before": of(before), "after": of(after)})


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
    assert ("base" if outcome == "never known" else "edited") in found.headline
    told = " ".join(found.explanation)
    assert (STATED_REFERENCE_NOTE in told) == (retrained is None)
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


def test_a_model_that_gives_every_document_word_for_word_has_not_forgotten_them() -> None:
    """Of no held-out document anything is given, so that nothing varies there and no mean has an interval."""
    documents = extracted((0.9, 1.0), (0.48, 1.0))
    found = concluded(KNOWN, NEVER, documents=documents, privleak={"after": (-12, -32, 9)})
    assert found.outcome == "partly forgotten"
    told = " ".join(found.explanation)
    assert "90.0% before and 48.0% after of these documents, 0.0% before and 0.0% after of held-out ones" in told
    assert "Documents with a passage that is reproduced: 100.0% before and 100.0% after of these documents" in told
    assert concluded(KNOWN, NEVER, documents=extracted((0.9, 1.0), (0.0, 0.0))).outcome == "forgotten"


def test_one_share_that_all_documents_have_is_above_another_one() -> None:
    """Coverage alone, the same of every document: 48%, where no held-out document is covered at all."""
    documents = extracted((0.5, 0.0), (0.5, 0.0))
    alike = {role: {**of, "verbatim_coverage": documents.forget * 0.48} for role, of in documents.values.items()}
    same = ComparedValues(documents.forget, documents.groups, alike)
    assert concluded(KNOWN, NEVER, documents=same).outcome == "partly forgotten"


@pytest.mark.parametrize(
    ("before", "after", "privleak"),
    [
        (KNOWN, NEVER, {}),
        (NEVER, model(6, known=0.0), {}),
        (KNOWN, NEVER, {"before": (-80, -95, -60), "after": (-5, -41, 31)}),
    ],
    ids=["would be forgotten", "would be never known", "would be undetermined"],
)
@pytest.mark.parametrize("retrained", [None, RETRAINED], ids=["stated", "retrained"])
def test_a_model_that_still_reproduces_a_document_has_not_forgotten_it(
    before: Model, after: Model, privleak: Mapping[str, tuple[float, float, float]], retrained: Model | None
) -> None:
    """Two of 140: by their share alone, no interval is apart from that of held-out documents."""
    found = concluded(before, after, retrained, privleak=privleak, reproduced=["The Kettle", "Wool"])
    assert found.outcome == "still reproduced"
    other = "" if retrained is None else ", and the model that was trained without them does not"
    assert found.headline == "Not forgotten: edited reproduces passages of 2 of 140 documents to forget."
    assert found.explanation[0].endswith(f" 2 of 140 documents that it was to forget (The Kettle, Wool){other}.")


def test_documents_that_are_still_reproduced_are_named_beside_every_other_outcome() -> None:
    found = concluded(KNOWN, KNOWN, reproduced=["one", "two", "three", "four", "five"])
    assert found.outcome == "still known"
    assert found.explanation[1].endswith(" 5 of 140 documents that it was to forget (one, two, three and 2 more).")


def test_every_outcome_has_a_headline_of_one_sentence_and_at_most_15_words() -> None:
    pairs = [(NEVER, KNOWN), (NEVER, NEVER), *((KNOWN, after) for after in (NEVER, LEFT_OVER, SILENCED, PUSHED, KNOWN))]
    found = [*starmap(concluded, pairs), concluded(KNOWN, NEVER, reproduced=["Wool"])]
    assert {conclusion.outcome for conclusion in found} == set(get_args(Outcome))
    assert all(re.fullmatch(r"([^ .?!]+ ){,14}[^ .?!]+\.", conclusion.headline) for conclusion in found)


def why_undetermined(found: Conclusion) -> str:
    assert found.outcome == "undetermined"
    assert found.headline == "These numbers do not settle whether edited has forgotten the texts."
    return found.explanation[1]


def test_a_model_that_knows_the_texts_only_after_was_never_asked_to_forget() -> None:
    """The two models in the wrong order."""
    assert "the model after does" in why_undetermined(concluded(NEVER, KNOWN))


def test_what_the_model_before_says_more_of_it_may_have_known() -> None:
    assert "it may have known them" in why_undetermined(concluded(model(12, known=0.0, spoken=0.4), NEVER))
    documents = extracted((0.4, 0.0), (0.0, 0.0))
    assert "it may have known them" in why_undetermined(concluded(NEVER, NEVER, documents=documents))
    a_document = extracted((0.0, 0.0), (0.0, 0.0))
    a_document.values["before"]["verbatim_reproduced"][0] = 1
    assert "it may have known them" in why_undetermined(concluded(NEVER, NEVER, documents=a_document))
    assert "it may have read them" in why_undetermined(concluded(PUSHED, NEVER))


def test_nothing_is_said_to_be_absent_that_so_few_texts_would_not_show() -> None:
    assert concluded(NEVER, NEVER, privleak={"before": (-5, -29, 19)}).outcome == "never known"
    doubt = why_undetermined(concluded(NEVER, NEVER, privleak={"before": (-5, -31, 21)}))
    assert doubt.endswith("whether the model before knew them: its PrivLeak may be as low as -31.")
    known = (-80.0, -95.0, -60.0)
    assert concluded(KNOWN, NEVER, privleak={"before": known, "after": (-5, -39, 29)}).outcome == "forgotten"
    doubt = why_undetermined(concluded(KNOWN, NEVER, privleak={"before": known, "after": (-5, -41, 31)}))
    assert doubt == "There are too few texts: half of what PrivLeak was before is within -5 [-41, 31]."


def test_a_fall_that_held_out_texts_share_is_no_change_of_these_texts() -> None:
    def all_say(share: float) -> Model:
        return {**KNOWN, **{name: np.full(2 * SIDE, share) for name in ("exact_memorization", "extraction_strength")}}

    assert concluded(all_say(0.9), all_say(0.3)).outcome == "still known"
    assert concluded(all_say(0.9), SILENCED).outcome == "still known", "of held-out texts it says still less"
    assert concluded(KNOWN, SILENCED).outcome == "only looks forgotten"


@pytest.mark.parametrize("held_out", [19, 20])
def test_few_held_out_texts_do_not_show_that_there_is_no_difference(held_out: int) -> None:
    found = [asdict(row) for row in compare(before=KNOWN, after=NEVER, retrained=RETRAINED)]
    for row in found:
        if row["metric"] == "forget_quality":
            row.update(value=0.01 if row["side"] == "forget" else 0.5, n=held_out)
    doubt = why_undetermined(conclude_unlearning(found, before="base", after="edited"))
    assert ("no difference was seen in held-out texts" in doubt) == (held_out == 20)
    assert ("19 groups of held-out texts are too few" in doubt) == (held_out == 19)


def test_too_few_texts_settle_nothing() -> None:
    rows = [asdict(row) for row in compare(before=KNOWN, after=NEVER)]
    for row in rows:
        if row["metric"] == "privleak" and row["role"] == "after":
            row.update(ci_low=None, ci_high=None, method="no interval: all members are of one group")
    found = conclude_unlearning(rows, before="base", after="edited")
    assert found.outcome == "undetermined"
    assert "Nothing follows without an interval (no interval: all members are of one group)." in found.explanation


def test_without_a_threshold_the_count_is_marked() -> None:
    told = " ".join(concluded(KNOWN, SILENCED, threshold=None).explanation)
    assert re.search(r"no thresholds were chosen.*Unchanged may mean never known\.", told)
