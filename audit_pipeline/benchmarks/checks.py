"""What must be true of a benchmark's examples, and what its readers should know.

A blocking check that fails means that numbers computed on the examples would be wrong; the others are to be read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.benchmarks.words import get_word_unit
from audit_pipeline.splits.shared_text import SHINGLE_WORDS, find_near_duplicates
from audit_pipeline.tables import MEMBER, NON_MEMBER

MAX_OFFENDERS = 20


@dataclass(frozen=True)
class BenchmarkCheck:
    """One check: whether it passed, what was looked at, in words, with counts, and the ids of offenders (at most 20).

    ``blocking`` says what a failure means: wrong data, or something to know.
    """

    name: str
    passed: bool
    blocking: bool
    what: str
    counts: Mapping[str, int] = field(default_factory=dict)
    offenders: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckKind:
    """What a check is for, known before any benchmark is built."""

    description: str
    blocking: bool


CHECKS: Mapping[str, CheckKind] = {
    "dates_on_their_side": CheckKind("No member is dated after the cutoff, no non-member before its own.", True),
    "no_text_on_both_sides": CheckKind("No text has two different labels.", True),
    "no_text_twice": CheckKind("Every text and every example id occurs once.", True),
    "exact_lengths": CheckKind("Every text has exactly the benchmark's number of words, where it has one.", True),
    "balanced": CheckKind("As many members as non-members in every collection, where the benchmark asks for it.", True),
    "both_classes": CheckKind("The evaluation split holds members and non-members, or nothing is labelled.", True),
    "groups_not_divided": CheckKind("Every group is in one split only.", True),
    "near_duplicates": CheckKind("Near duplicates across the sides, counted.", False),
}
"""Every check by the name of its results; a benchmark that a check has nothing to look at in has no result of it."""


def run_checks(examples: pa.Table, spec: BenchmarkSpec) -> list[BenchmarkCheck]:
    """Every check that applies to ``examples`` (schema EXAMPLES) as ``spec`` has them, in a fixed order."""
    settings = spec.settings
    results = []
    if settings.cutoff_dates is not None:
        results.append(check_dates_on_their_side(examples, *settings.cutoff_dates))
    split = get_word_unit(settings.unit).split
    return [
        *results,
        check_no_text_on_both_sides(examples),
        check_no_text_twice(examples),
        *([check_exact_lengths(examples, spec.length, split)] if spec.has_exact_length else []),
        check_balanced(examples, required=settings.is_balanced),
        check_both_classes(examples),
        check_groups_not_divided(examples),
        check_near_duplicates(examples, settings.near_duplicate_threshold, split),
    ]


def check_dates_on_their_side(examples: pa.Table, member_before: date, nonmember_from: date) -> BenchmarkCheck:
    """No member is published on or after ``member_before``, no non-member before ``nonmember_from``, none undated."""
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
    counts = {name: wrong[name] for name in ("undated", "members too late", "nonmembers too early")}
    what = f"members published before {member_before}, non-members from {nonmember_from} on"
    return _build_result("dates_on_their_side", what, counts, offenders)


def check_no_text_on_both_sides(examples: pa.Table) -> BenchmarkCheck:
    """No text has two different labels, an unknown one among them."""
    labels: dict[str, set[int | None]] = defaultdict(set)
    for row in examples.select(["text", "label"]).to_pylist():
        labels[row["text"]].add(row["label"])
    offenders = _find_offender_ids(examples, lambda row: len(labels[row["text"]]) > 1)
    counts = {"texts on both sides": sum(len(of_text) > 1 for of_text in labels.values())}
    return _build_result("no_text_on_both_sides", "no text is on both sides", counts, offenders)


def check_no_text_twice(examples: pa.Table) -> BenchmarkCheck:
    """No text and no example id occurs twice."""
    texts = Counter(examples.column("text").to_pylist())
    ids = Counter(examples.column("example_id").to_pylist())
    offenders = _find_offender_ids(examples, lambda row: texts[row["text"]] > 1 or ids[row["example_id"]] > 1)
    counts = {"rows too many": examples.num_rows - min(len(texts), len(ids))}
    return _build_result("no_text_twice", "every text and every example id occurs once", counts, offenders)


def check_exact_lengths(
    examples: pa.Table, words: int, split: Callable[[str], list[str]] = str.split
) -> BenchmarkCheck:
    """Every text has exactly ``words`` words, and its row says so."""
    offenders = _find_offender_ids(examples, lambda row: not len(split(row["text"])) == row["words"] == words)
    return _build_result("exact_lengths", f"every text has {words} words", {"other lengths": len(offenders)}, offenders)


def check_balanced(examples: pa.Table, *, required: bool) -> BenchmarkCheck:
    """As many members as non-members in every collection, and so in all; the offenders are collections.

    Where it is not ``required`` the numbers are given and the check passes.
    """
    sides: Counter[tuple[str, int | None]] = Counter(
        zip(examples.column("collection").to_pylist(), examples.column("label").to_pylist(), strict=True)
    )
    collections = sorted({collection for collection, _ in sides})
    uneven = [name for name in collections if sides[name, MEMBER] != sides[name, NON_MEMBER]]
    counts = {
        "members": sum(sides[name, MEMBER] for name in collections),
        "nonmembers": sum(sides[name, NON_MEMBER] for name in collections),
        "collections": len(collections),
        "uneven collections": len(uneven),
    }
    what = "as many members as non-members in every collection"
    if not required:
        return _build_result("balanced", f"{what} (not asked of this benchmark)", counts, uneven, passed=True)
    return _build_result("balanced", what, counts, uneven)


def check_both_classes(examples: pa.Table) -> BenchmarkCheck:
    """The evaluation split holds members and non-members; where none of it is labelled (a shelf) it passes too."""
    rows = examples.select(["label", "split"]).to_pylist()
    labels = Counter(row["label"] for row in rows if row["split"] == "evaluation")
    counts = {"members": labels[MEMBER], "nonmembers": labels[NON_MEMBER], "unlabelled": labels[None]}
    if labels[None] and not labels[MEMBER] + labels[NON_MEMBER]:
        held_out = sum(row["label"] == NON_MEMBER for row in rows)
        what = "nothing that is audited is labelled: " + (
            "compared with held-out texts" if held_out else "scores, but no metrics"
        )
        return _build_result("both_classes", what, {**counts, "held out": held_out})
    passed = bool(labels[MEMBER] and labels[NON_MEMBER])
    return _build_result("both_classes", "members and non-members in the evaluation split", counts, passed=passed)


def check_groups_not_divided(examples: pa.Table) -> BenchmarkCheck:
    """Every group is in one split only; the offenders are groups."""
    splits: dict[str, set[str]] = defaultdict(set)
    for row in examples.select(["group", "split"]).to_pylist():
        splits[row["group"]].add(row["split"])
    divided = sorted(group for group, of_group in splits.items() if len(of_group) > 1)
    counts = {"groups": len(splits), "divided groups": len(divided)}
    return _build_result("groups_not_divided", "every group is in one split only", counts, divided)


def check_near_duplicates(
    examples: pa.Table, threshold: float, split: Callable[[str], list[str]] = str.split
) -> BenchmarkCheck:
    """Pairs of texts that nearly are each other: between the sides, and within a side between groups. Never blocking.

    Between the sides such a pair blurs the labels; within a side it makes groups less independent than intervals take
    them to be. Passes where there is no pair between the sides.
    """
    rows = examples.select(["example_id", "label", "group", "text"]).to_pylist()
    between: list[tuple[float, str, str]] = []
    involved: dict[int | None, set[str]] = defaultdict(set)
    within: Counter[int | None] = Counter()
    for pair in find_near_duplicates([row["text"] for row in rows], threshold, split=split):
        first, second = rows[pair.first], rows[pair.second]
        # Of a shelf, what is audited against what is held out.
        if {first["label"], second["label"]} in ({MEMBER, NON_MEMBER}, {None, NON_MEMBER}):
            between.append((-pair.similarity, first["example_id"], second["example_id"]))
            for row in (first, second):
                involved[row["label"]].add(row["example_id"])
        elif first["label"] == second["label"] and first["group"] != second["group"]:
            within[first["label"]] += 1
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
    """The result of the check ``name``; it has ``passed`` where nothing else is said and there are no offenders."""
    found = tuple(offenders)
    is_passed = not found if passed is None else passed
    return BenchmarkCheck(name, is_passed, CHECKS[name].blocking, what, counts, found[:MAX_OFFENDERS])


def _find_offender_ids(examples: pa.Table, is_wrong: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    columns = ["example_id", "text", "label", "words"]
    return [row["example_id"] for row in examples.select(columns).to_pylist() if is_wrong(row)]
