"""The conclusion of a comparison: the outcome and the sentences for forgotten, known and never known texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import starmap
from types import MappingProxyType
from typing import get_args

import numpy as np
import pytest
from made_values import SIDE, compare, model

from audit_pipeline.extras.unlearning.comparison_rows import (
    DOCUMENT_MEASURES,
    ComparedValues,
    ComparisonFinding,
    ReproducedDocuments,
    compare_documents,
    measure_still_reproduced,
)
from audit_pipeline.extras.unlearning.conclusion_section import (
    STATED_REFERENCE_NOTE,
    Conclusion,
    Outcome,
    conclude_unlearning,
)
from audit_pipeline.tables import ComparedModel

Model = Mapping[str, np.ndarray]
KNOWN = model(1, known=2.0, spoken=0.9)
SILENCED = model(2, known=2.0, spoken=0.3)
NEVER = model(3, known=0.0)
LEFT_OVER = model(12, known=0.0, spoken=0.4)
PUSHED = model(4, known=-2.0, spoken=0.05)
RETRAINED = model(5, known=0.0)
DOCUMENTS = 12
Spoken = tuple[float, float]
"""The share of the documents' characters that a model gives, and the share of documents with a reproduced passage."""
Changes = Mapping[tuple[str, str], Mapping[str, object]]


def conclude(
    before: Model,
    after: Model,
    retrained: Model | None = None,
    threshold: float | None = -3.2,
    documents: Sequence[ComparisonFinding] = (),
    changes: Changes = MappingProxyType({}),
) -> Conclusion:
    """Conclude the comparison of models. ``changes`` replace columns of the rows, by metric and role."""
    models = {"before": before, "after": after, **({} if retrained is None else {"retrained": retrained})}
    rows = [asdict(row) for row in (*compare(threshold, **models), *documents)]
    for row in rows:
        row.update(changes.get((row["metric"], row["role"]), {}))
    return conclude_unlearning(rows, before="base", after="edited")


def privleak(value: float, low: float, high: float) -> Mapping[str, float]:
    return {"value": value, "ci_low": low, "ci_high": high}


UNCLEAR: Changes = {("privleak", "before"): privleak(-80, -95, -60), ("privleak", "after"): privleak(-5, -41, 31)}


def extract(before: Spoken, after: Spoken) -> ComparedValues:
    """Return documents to be forgotten with these shares, and as many held-out documents without any."""
    forget = np.arange(2 * DOCUMENTS) < DOCUMENTS
    shares: dict[ComparedModel, Spoken] = {"before": before, "after": after}
    values: dict[ComparedModel, Model] = {}
    for role, (coverage, reproduced) in shares.items():
        spread = np.tile(np.linspace(-0.1, 0.1, DOCUMENTS), 2) * (coverage > 0)
        columns = (forget * (coverage + spread), np.full(2 * DOCUMENTS, -9.0), forget * reproduced)
        values[role] = dict(zip(DOCUMENT_MEASURES, columns, strict=True))
    return ComparedValues(forget, [f"document {at}" for at in range(2 * DOCUMENTS)], values)


def reproduce(*names: str) -> list[ComparisonFinding]:
    """Return the row of 140 documents, of which the model after still reproduces these."""
    documents = [*names, *(f"document {number}" for number in range(len(names), 140))]
    return [measure_still_reproduced(ReproducedDocuments(documents, documents, np.arange(140) < len(names), None))]


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
def test_the_outcome_follows_from_the_values_of_the_model_after(
    before: Model, after: Model, outcome: Outcome, retrained: Model | None
) -> None:
    found = conclude(before, after, retrained)
    assert found.outcome == outcome
    assert ("base" if outcome == "never known" else "edited") in found.headline
    told = " ".join(found.explanation)
    assert (STATED_REFERENCE_NOTE in told) == (retrained is None)
    assert ("Forget quality" in told) == (retrained is not None)
    assert "0: as in the reference" in told
    assert "Suspicious" in told


def test_texts_can_be_as_likely_as_held_out_texts_but_not_as_in_the_retrained_model() -> None:
    """Half of the texts are still known, and half are far less likely. On average nothing changed."""
    push = np.repeat([3.0, -3.0, 0.0, 0.0], SIDE // 2)
    half = {
        name: values + push * (name in ("mean_log_probability", "min_40", "min_k")) for name, values in NEVER.items()
    }
    assert conclude(KNOWN, half).outcome == "forgotten", "PrivLeak alone does not see it"
    found = conclude(KNOWN, half, RETRAINED)
    assert found.outcome == "undetermined"
    assert any("not as likely as in the retrained model" in one for one in found.explanation)


def test_text_that_the_retrained_model_also_gives_is_no_trace() -> None:
    easier = model(8, known=0.0, spoken=0.4)
    assert conclude(KNOWN, LEFT_OVER, easier).outcome == "forgotten"


def test_a_model_that_reproduces_every_document_has_not_forgotten_them() -> None:
    """The model gives nothing of the held-out documents, so their means have no interval."""
    documents = compare_documents(extract((0.9, 1.0), (0.48, 1.0)))
    found = conclude(KNOWN, NEVER, documents=documents, changes={("privleak", "after"): privleak(-12, -32, 9)})
    assert found.outcome == "partly forgotten"
    told = " ".join(found.explanation)
    assert "90.0% before and 48.0% after of these documents, 0.0% before and 0.0% after of held-out ones" in told
    assert "Documents with a passage that is reproduced: 100.0% before and 100.0% after of these documents" in told
    documents = compare_documents(extract((0.9, 1.0), (0.0, 0.0)))
    assert conclude(KNOWN, NEVER, documents=documents).outcome == "forgotten"


def test_equal_shares_of_all_documents_are_compared_without_intervals() -> None:
    documents = extract((0.5, 0.0), (0.5, 0.0))
    alike = {role: {**of, "verbatim_coverage": documents.forget * 0.48} for role, of in documents.values.items()}
    same = ComparedValues(documents.forget, documents.groups, alike)
    assert conclude(KNOWN, NEVER, documents=compare_documents(same)).outcome == "partly forgotten"


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        (KNOWN, NEVER, {}),
        (NEVER, model(6, known=0.0), {}),
        (KNOWN, NEVER, UNCLEAR),
    ],
    ids=["would be forgotten", "would be never known", "would be undetermined"],
)
@pytest.mark.parametrize("retrained", [None, RETRAINED], ids=["stated", "retrained"])
def test_a_model_that_still_reproduces_a_document_has_not_forgotten_it(
    before: Model, after: Model, changes: Changes, retrained: Model | None
) -> None:
    """The share of 2 of 140 documents alone would not be clearly above the share of held-out documents."""
    found = conclude(before, after, retrained, documents=reproduce("The Kettle", "Wool"), changes=changes)
    assert found.outcome == "still reproduced"
    other = "" if retrained is None else ", and the model that was trained without them does not"
    assert found.headline == "Not forgotten: edited reproduces passages of 2 of 140 documents to forget."
    assert found.explanation[0].endswith(f" 2 of 140 documents that it was to forget (The Kettle, Wool){other}.")


def test_reproduced_documents_are_named_with_every_outcome() -> None:
    found = conclude(KNOWN, KNOWN, documents=reproduce("one", "two", "three", "four", "five"))
    assert found.outcome == "still known"
    assert found.explanation[1].endswith(" 5 of 140 documents that it was to forget (one, two, three and 2 more).")


def test_every_outcome_has_a_headline_of_one_sentence_and_at_most_15_words() -> None:
    pairs = [(NEVER, KNOWN), (NEVER, NEVER), *((KNOWN, after) for after in (NEVER, LEFT_OVER, SILENCED, PUSHED, KNOWN))]
    found = [*starmap(conclude, pairs), conclude(KNOWN, NEVER, documents=reproduce("Wool"))]
    assert {conclusion.outcome for conclusion in found} == set(get_args(Outcome))
    assert all(re.fullmatch(r"([^ .?!]+ ){,14}[^ .?!]+\.", conclusion.headline) for conclusion in found)


def why_undetermined(found: Conclusion) -> str:
    assert found.outcome == "undetermined"
    assert found.headline == "These numbers do not settle whether edited has forgotten the texts."
    return found.explanation[1]


def test_a_model_that_knows_the_texts_only_after_is_undetermined() -> None:
    assert "the model after unlearning does" in why_undetermined(conclude(NEVER, KNOWN))


def test_text_that_the_model_before_gives_may_have_been_known() -> None:
    assert "it may have known them" in why_undetermined(conclude(model(12, known=0.0, spoken=0.4), NEVER))
    documents = compare_documents(extract((0.4, 0.0), (0.0, 0.0)))
    assert "it may have known them" in why_undetermined(conclude(NEVER, NEVER, documents=documents))
    a_document = extract((0.0, 0.0), (0.0, 0.0))
    a_document.values["before"]["verbatim_reproduced"][0] = 1
    assert "it may have known them" in why_undetermined(conclude(NEVER, NEVER, documents=compare_documents(a_document)))
    assert "it may have read them" in why_undetermined(conclude(PUSHED, NEVER))


def test_few_texts_do_not_show_an_absence() -> None:
    changes = {("privleak", "before"): privleak(-5, -29, 19)}
    assert conclude(NEVER, NEVER, changes=changes).outcome == "never known"
    doubt = why_undetermined(conclude(NEVER, NEVER, changes={("privleak", "before"): privleak(-5, -31, 21)}))
    assert doubt.endswith("whether the model before knew them: its PrivLeak may be as low as -31.")
    changes = {**UNCLEAR, ("privleak", "after"): privleak(-5, -39, 29)}
    assert conclude(KNOWN, NEVER, changes=changes).outcome == "forgotten"
    doubt = why_undetermined(conclude(KNOWN, NEVER, changes=UNCLEAR))
    assert doubt == (
        "There are too few texts: half of PrivLeak before unlearning is within the interval of PrivLeak after "
        "unlearning, -5 [-41, 31]."
    )


def test_a_fall_that_held_out_texts_share_does_not_count() -> None:
    def all_say(share: float) -> Model:
        return {**KNOWN, **{name: np.full(2 * SIDE, share) for name in ("exact_memorization", "extraction_strength")}}

    assert conclude(all_say(0.9), all_say(0.3)).outcome == "still known"
    assert conclude(all_say(0.9), SILENCED).outcome == "still known", "it gives even less of held-out texts"
    assert conclude(KNOWN, SILENCED).outcome == "only looks forgotten"


@pytest.mark.parametrize("held_out", [19, 20])
def test_few_held_out_texts_do_not_show_equality(held_out: int) -> None:
    found = [asdict(row) for row in compare(before=KNOWN, after=NEVER, retrained=RETRAINED)]
    for row in found:
        if row["metric"] == "forget_quality":
            row.update(value=0.01 if row["side"] == "forget" else 0.5, n=held_out)
    doubt = why_undetermined(conclude_unlearning(found, before="base", after="edited"))
    assert ("Held-out texts show no such difference" in doubt) == (held_out == 20)
    assert ("19 groups of held-out texts are too few" in doubt) == (held_out == 19)


def test_nothing_follows_without_an_interval() -> None:
    method = "no interval: all members are of one group"
    changes = {("privleak", "after"): {"ci_low": None, "ci_high": None, "method": method}}
    found = conclude(KNOWN, NEVER, changes=changes)
    assert found.outcome == "undetermined"
    assert (
        "PrivLeak has no interval, so nothing can be concluded (no interval: all members are of one group)."
        in found.explanation
    )


def test_without_a_threshold_the_share_is_missing() -> None:
    told = " ".join(conclude(KNOWN, SILENCED, threshold=None).explanation)
    assert re.search(r"no thresholds were chosen.*Unchanged texts may never have been known\.", told)
