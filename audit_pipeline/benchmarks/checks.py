"""Checks of a benchmark's examples.

If a blocking check fails, numbers computed on the examples would be wrong. The other checks inform readers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.settings import BenchmarkSpec, get_word_unit
from audit_pipeline.splits.shared_text import SHINGLE_WORDS, find_near_duplicates
from audit_pipeline.tables import MEMBER, NON_MEMBER

MAX_OFFENDERS = 20


@dataclass(frozen=True)
class BenchmarkCheck:
    """The result of one check.

    Attributes:
        name: The name of the check.
        passed: True if the check passed.
        blocking: True if a failure means wrong data.
        what: The description of the check with its parameters.
        counts: The counts that the check reports.
        offenders: At most 20 ids of examples, groups or collections that violate the check.
    """

    name: str
    passed: bool
    blocking: bool
    what: str
    counts: Mapping[str, int] = field(default_factory=dict)
    offenders: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckKind:
    """The description of a check, which is known before a benchmark is built."""

    description: str
    blocking: bool


CHECKS: Mapping[str, CheckKind] = {
    "dates_on_their_side": CheckKind("No member is dated after its cutoff, and no non-member before its cutoff.", True),
    "no_text_on_both_sides": CheckKind("No text has two different labels.", True),
    "no_text_twice": CheckKind("Every text and every example id occurs once.", True),
    "exact_lengths": CheckKind("Every text has exactly the benchmark's number of words, if it has one.", True),
    "balanced": CheckKind("Every collection has as many members as non-members, if the benchmark requires it.", True),
    "both_classes": CheckKind("The evaluation split has members and non-members, or it has no labels.", True),
    "groups_not_divided": CheckKind("Every group is in one split only.", True),
    "near_duplicates": CheckKind("The number of near-duplicates between the sides.", False),
}
"""Every check by name. Only the checks that apply to a benchmark are run."""


def run_checks(examples: pa.Table, spec: BenchmarkSpec) -> list[BenchmarkCheck]:
    """Run every check that applies to the examples (schema EXAMPLES) of a benchmark, in a fixed order."""
    settings = spec.settings
    split = get_word_unit(settings.unit).split
    results = []
    if settings.cutoff_dates is not None:
        results.append(check_dates_on_their_side(examples, *settings.cutoff_dates))
    results.append(check_no_text_on_both_sides(examples))
    results.append(check_no_text_twice(examples))
    if spec.has_exact_length:
        results.append(check_exact_lengths(examples, spec.length, split))
    results.append(check_balanced(examples, required=settings.is_balanced))
    results.append(check_both_classes(examples))
    results.append(check_groups_not_divided(examples))
    results.append(check_near_duplicates(examples, settings.near_duplicate_threshold, split))
    return results


def check_dates_on_their_side(examples: pa.Table, member_before: date, nonmember_from: date) -> BenchmarkCheck:
    """Check that members are published before ``member_before``, non-members on or after ``nonmember_from``.

    Undated examples violate the check, too.
    """
    wrong: Counter[str] = Counter()
    offenders: list[str] = []
    for row in examples.select(["example_id", "label", "published"]).to_pylist():
        published: date | None = row["published"]
        if published is None:
            reason = "undated"
        elif row["label"] == MEMBER and published >= member_before:
            reason = "members too late"
        elif row["label"] == NON_MEMBER and published < nonmember_from:
            reason = "nonmembers too early"
        else:
            continue
        wrong[reason] += 1
        offenders.append(row["example_id"])
    counts = dict.fromkeys(("undated", "members too late", "nonmembers too early"), 0)
    counts.update(wrong)
    what = f"members published before {member_before}, non-members from {nonmember_from} on"
    return _build_result("dates_on_their_side", what, counts, offenders)


def check_no_text_on_both_sides(examples: pa.Table) -> BenchmarkCheck:
    """Check that no text and no conversation has two different labels. An unknown label counts as a label."""
    labels: dict[str, set[int | None]] = defaultdict(set)
    for row in examples.select(["text", "messages", "label"]).to_pylist():
        labels[_get_content(row)].add(row["label"])
    offenders = _find_offender_ids(examples, lambda row: len(labels[_get_content(row)]) > 1)
    counts = {"texts on both sides": sum(len(labels_of_text) > 1 for labels_of_text in labels.values())}
    return _build_result("no_text_on_both_sides", "no text is on both sides", counts, offenders)


def _get_content(row: Mapping[str, Any]) -> str:
    """Return the messages of a conversation, because different conversations may have the same answer, or the text."""
    return str(row["messages"] or row["text"])


def check_no_text_twice(examples: pa.Table) -> BenchmarkCheck:
    """Check that no text, no conversation and no example id occurs twice."""
    texts = Counter(map(_get_content, examples.select(["text", "messages"]).to_pylist()))
    ids = Counter(examples.column("example_id").to_pylist())
    offenders = _find_offender_ids(examples, lambda row: texts[_get_content(row)] > 1 or ids[row["example_id"]] > 1)
    counts = {"rows too many": examples.num_rows - min(len(texts), len(ids))}
    return _build_result("no_text_twice", "every text and every example id occurs once", counts, offenders)


def check_exact_lengths(
    examples: pa.Table, words: int, split: Callable[[str], list[str]] = str.split
) -> BenchmarkCheck:
    """Check that every text has exactly ``words`` words, and that the column ``words`` contains this number."""
    offenders = _find_offender_ids(examples, lambda row: not len(split(row["text"])) == row["words"] == words)
    return _build_result("exact_lengths", f"every text has {words} words", {"other lengths": len(offenders)}, offenders)


def check_balanced(examples: pa.Table, *, required: bool) -> BenchmarkCheck:
    """Check that every collection has as many members as non-members. The offenders are collections.

    If ``required`` is False, the check only reports the numbers, and passes.
    """
    sides: Counter[tuple[str, int | None]] = Counter(
        zip(examples.column("collection").to_pylist(), examples.column("label").to_pylist(), strict=True)
    )
    collections = sorted(set(examples.column("collection").to_pylist()))
    uneven = [name for name in collections if sides[name, MEMBER] != sides[name, NON_MEMBER]]
    totals: Counter[int | None] = Counter(examples.column("label").to_pylist())
    counts = {
        "members": totals[MEMBER],
        "nonmembers": totals[NON_MEMBER],
        "collections": len(collections),
        "uneven collections": len(uneven),
    }
    what = "as many members as non-members in every collection"
    if not required:
        return _build_result("balanced", f"{what} (not required for this benchmark)", counts, uneven, passed=True)
    return _build_result("balanced", what, counts, uneven)


def check_both_classes(examples: pa.Table) -> BenchmarkCheck:
    """Check that the evaluation split holds members and non-members.

    The check also passes if the evaluation split has no labels, as in a shelf.
    """
    rows = examples.select(["label", "split"]).to_pylist()
    labels = Counter(row["label"] for row in rows if row["split"] == "evaluation")
    counts = {"members": labels[MEMBER], "nonmembers": labels[NON_MEMBER], "unlabelled": labels[None]}
    if labels[None] and not labels[MEMBER] + labels[NON_MEMBER]:
        n_held_out = sum(row["label"] == NON_MEMBER for row in rows)
        consequence = "there are scores, but no metrics"
        if n_held_out:
            consequence = "the texts are compared with held-out texts"
        what = f"no audited text has a label, so {consequence}"
        return _build_result("both_classes", what, {**counts, "held out": n_held_out})
    passed = bool(labels[MEMBER] and labels[NON_MEMBER])
    return _build_result("both_classes", "members and non-members in the evaluation split", counts, passed=passed)


def check_groups_not_divided(examples: pa.Table) -> BenchmarkCheck:
    """Check that every group is in one split only. The offenders are groups."""
    splits: dict[str, set[str]] = defaultdict(set)
    for row in examples.select(["group", "split"]).to_pylist():
        splits[row["group"]].add(row["split"])
    divided = sorted(group for group, splits_of_group in splits.items() if len(splits_of_group) > 1)
    counts = {"groups": len(splits), "divided groups": len(divided)}
    return _build_result("groups_not_divided", "every group is in one split only", counts, divided)


def check_near_duplicates(
    examples: pa.Table, threshold: float, split: Callable[[str], list[str]] = str.split
) -> BenchmarkCheck:
    """Count the pairs of near-duplicates between the sides, and within a side between groups. Never blocking.

    A pair between the sides blurs the labels. A pair within a side makes groups dependent, which intervals do not
    consider. The check passes if there is no pair between the sides. The sides of a shelf are the audited texts and the
    held-out texts.
    """
    rows = examples.select(["example_id", "label", "group", "text"]).to_pylist()
    between: list[tuple[float, str, str]] = []
    involved: dict[int | None, set[str]] = defaultdict(set)
    within: Counter[int | None] = Counter()
    for pair in find_near_duplicates(examples.column("text").to_pylist(), threshold, split=split):
        row = rows[pair.first]
        other_row = rows[pair.second]
        if {row["label"], other_row["label"]} in ({MEMBER, NON_MEMBER}, {None, NON_MEMBER}):
            between.append((-pair.similarity, row["example_id"], other_row["example_id"]))
            involved[row["label"]].add(row["example_id"])
            involved[other_row["label"]].add(other_row["example_id"])
        elif row["label"] == other_row["label"] and row["group"] != other_row["group"]:
            within[row["label"]] += 1
    closest = dict.fromkeys(name for _, *names in sorted(between) for name in names)
    counts = {
        "pairs between the sides": len(between),
        "members in them": len(involved[MEMBER]),
        "nonmembers in them": len(involved[NON_MEMBER]),
        "pairs of members of different groups": within[MEMBER],
        "pairs of nonmembers of different groups": within[NON_MEMBER],
    }
    what = f"near-duplicates: Jaccard similarity of {SHINGLE_WORDS}-word shingles of at least {threshold}"
    return _build_result("near_duplicates", what, counts, closest)


def _build_result(
    name: str, what: str, counts: Mapping[str, int], offenders: Iterable[str] = (), passed: bool | None = None
) -> BenchmarkCheck:
    """Build the result of a check. If ``passed`` is None, the check passes if it has no offenders."""
    offenders = tuple(offenders)
    if passed is None:
        passed = not offenders
    return BenchmarkCheck(name, passed, CHECKS[name].blocking, what, counts, offenders[:MAX_OFFENDERS])


def _find_offender_ids(examples: pa.Table, is_wrong: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    columns = ["example_id", "text", "messages", "label", "words"]
    return [row["example_id"] for row in examples.select(columns).to_pylist() if is_wrong(row)]
