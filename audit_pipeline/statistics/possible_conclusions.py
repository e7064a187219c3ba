"""The conclusions that a planned comparison allows, and how to make them stronger. No model runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit_pipeline.splits.blind_controls import MIN_EXAMPLES
from audit_pipeline.statistics.claims import MILD_BELOW, decide_claim_level
from audit_pipeline.statistics.conformal import count_held_out_needed
from audit_pipeline.statistics.membership_decisions import ALPHAS
from audit_pipeline.statistics.thresholds import min_certified_groups, min_marginal_groups

_P = max(ALPHAS)


@dataclass(frozen=True)
class PlannedComparison:
    """A planned comparison. A group is a document, or all texts with the same name in the group column.

    Attributes:
        audited: Number of audited groups.
        held_out: Number of groups that the model cannot have read.
        members: Number of groups that the model is known to have read.
        windows: Number of texts (windows of documents) that the blind control would read.
        design: The design of the benchmark, which depends on how the held-out groups were chosen.
    """

    audited: int
    held_out: int
    members: int
    windows: int
    design: str


@dataclass(frozen=True)
class PassageSearch:
    """A planned search for passages that the model reproduces word for word.

    Attributes:
        documents: Number of documents to search.
        too_short: Number of documents with fewer than ``tokens`` tokens.
        tokens: The minimum length of a searched document, in tokens.
        problem: Why no document can be searched, or None.
    """

    documents: int
    too_short: int
    tokens: int
    problem: str | None = None


@dataclass(frozen=True)
class PossibleConclusions:
    """The possible conclusions and the suggestions for stronger ones, as sentences."""

    conclusions: tuple[str, ...]
    stronger: tuple[str, ...]


def list_possible_conclusions(comparison: PlannedComparison, search: PassageSearch) -> PossibleConclusions:
    """List the conclusions that a planned comparison and a planned search allow, and suggestions for stronger ones."""
    suggestions: list[str] = []
    if search.problem is None and search.too_short:
        suggestions.append(
            f"Use longer documents. Documents with at least {search.tokens} tokens (about {search.tokens * 3 // 4} "
            "English words) can be searched for passages. Rows that are parts of one text can be joined in one file."
        )
    suggestions += _suggest_stronger_design(comparison)
    conclusions = [*_state_passage_conclusions(search), *_state_score_conclusions(comparison)]
    return PossibleConclusions(tuple(conclusions), tuple(suggestions))


def _state_passage_conclusions(search: PassageSearch) -> Iterator[str]:
    if search.problem is not None:
        yield f"Nothing about passages that the model gives word for word: {search.problem}."
        return
    if search.too_short < search.documents:
        scope = f", of {search.documents - search.too_short:,} of the documents" if search.too_short else ""
        yield (
            f"Which passages the model gives word for word{scope}. This is seen directly, and needs no other documents."
        )
    if search.too_short:
        verb = "is" if search.too_short == 1 else "are"
        yield (
            f"{search.too_short:,} of {search.documents:,} documents {verb} too short for extraction (fewer than "
            f"{search.tokens} tokens): nothing can be concluded about passages there."
        )


def _state_score_conclusions(comparison: PlannedComparison) -> Iterator[str]:
    if not comparison.held_out:
        yield "Nothing else about a document: without held-out documents its scores have nothing to be compared with."
        return
    smallest = 1 / (comparison.held_out + 1)
    yield (
        f"A p-value for each document, compared with {comparison.held_out} held-out document(s). It cannot be smaller "
        f"than {smallest:.2g}."
    )
    yield "How well each detector separates the audited texts from the held-out texts (AUROC, with its interval)."
    certified = [alpha for alpha in ALPHAS if comparison.held_out >= min_certified_groups(alpha)]
    if certified:
        yield (
            f"Which share of each document is flagged, at a false-positive rate that is certified to be at most "
            f"{min(certified):.0%}."
        )
    if comparison.members:
        yield (
            "How well each detector separates the known members from the held-out texts, and which shares are flagged "
            "after correction for the detector's errors."
        )
    level = decide_claim_level(comparison.design, "mild shift")
    if level == "screening only":
        yield (
            f"The claim level is '{level}', because the held-out documents may differ from the audited documents in "
            "date or kind, and a detector may measure this difference instead of membership."
        )
    else:
        yield (
            f"The claim level can reach '{level}', since chance chose the held-out documents, if their words alone do "
            f"not separate them (blind control below {MILD_BELOW:g})."
        )


def _suggest_stronger_design(comparison: PlannedComparison) -> Iterator[str]:
    if not comparison.held_out:
        yield (
            "Use --held-out to name documents of the same kind that the model cannot have read, because they are newer "
            f"than the model or were never published. With {min_marginal_groups(_P)} such documents, p-values can be "
            f"as small as {_P:g}. With {min_certified_groups(_P)}, flagged shares have a certified false-positive rate "
            f"of {_P:.0%}."
        )
        return
    if comparison.held_out < min_marginal_groups(_P):
        yield f"With {min_marginal_groups(_P)} held-out documents, p-values can be as small as {_P:g}."
    unreachable = [alpha for alpha in ALPHAS if comparison.held_out < min_certified_groups(alpha)]
    if unreachable:
        alpha = max(unreachable)
        yield (
            f"With {min_certified_groups(alpha)} held-out documents, flagged shares have a certified "
            "false-positive rate of "
            f"{alpha:.0%}."
        )
    n_needed = count_held_out_needed(comparison.audited, 1, _P)
    if comparison.held_out < n_needed:
        yield (
            f"To single out one document among {comparison.audited} (q-value of {_P:g}), {n_needed:,} held-out "
            "documents are required. If several documents have high scores, fewer suffice."
        )
    if comparison.windows < MIN_EXAMPLES:
        yield (
            f"There are {comparison.windows} texts to compare. The blind control, which shows whether the words alone "
            f"separate the two sides, requires {MIN_EXAMPLES}. Add documents, or longer documents."
        )
    if not comparison.members:
        yield (
            "Use --members to name documents that the model is known to have read. Flagged shares can then be "
            "corrected for the detector's errors."
        )
    if decide_claim_level(comparison.design, "mild shift") == "screening only":
        if comparison.design == "unstated":
            yield (
                "State why the model has not read the held-out documents, with --held-out-because newer, unpublished "
                "or random. The report quotes this statement as yours."
            )
        yield (
            "If documents of a single collection were held out at random, state this with --held-out-because random. "
            "Otherwise the claim level stays 'screening only'."
        )
