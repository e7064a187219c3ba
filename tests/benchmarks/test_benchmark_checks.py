"""The checks of a benchmark's examples."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import made_rows
import pyarrow as pa
from made_documents import NEW, OLD, document, documents_table, labelled_spec, temporal_spec, words_of

from audit_pipeline.benchmarks import checks
from audit_pipeline.benchmarks.builders.temporal import draw_temporal_windows
from audit_pipeline.benchmarks.checks import BenchmarkCheck, run_checks
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import EXAMPLES


def example(name: str, label: int | None, **changes: Any) -> dict[str, Any]:
    own = {"benchmark": "made_10", "text": words_of(name, 10), "words": 10, "collection": "project", "label": label}
    return made_rows.example(name, **{**own, "published": {1: OLD, 0: NEW, None: None}[label], **changes})


def table(*rows: Mapping[str, Any]) -> pa.Table:
    return table_from_rows(rows, EXAMPLES)


def by_name(examples: pa.Table, spec: Any = None) -> dict[str, BenchmarkCheck]:
    return {check.name: check for check in run_checks(examples, spec or temporal_spec())}


def test_sound_examples_pass_every_check() -> None:
    results = by_name(table(example("m", 1), example("n", 0)))
    assert list(results) == [
        "dates_on_their_side",
        "no_text_on_both_sides",
        "no_text_twice",
        "exact_lengths",
        "balanced",
        "both_classes",
        "groups_not_divided",
        "near_duplicates",
    ]
    assert list(results) == list(checks.CHECKS)
    assert {name: check.blocking for name, check in results.items()} == {
        name: kind.blocking for name, kind in checks.CHECKS.items()
    }
    assert all(check.passed for check in results.values())
    assert [name for name, check in results.items() if not check.blocking] == ["near_duplicates"]


def test_dates_on_the_wrong_side_are_found() -> None:
    examples = table(
        example("late", 1, published=date(2022, 1, 1)),
        example("intime", 1, published=date(2021, 12, 31)),
        example("early", 0, published=date(2024, 12, 31)),
        example("onday", 0, published=date(2025, 1, 1)),
        example("undated", 1, published=None),
    )
    check = by_name(examples)["dates_on_their_side"]
    assert (check.passed, check.blocking, check.offenders) == (False, True, ("late", "early", "undated"))
    assert check.counts == {"undated": 1, "members too late": 1, "nonmembers too early": 1}


def test_a_text_on_both_sides_or_twice_is_found() -> None:
    same = words_of("same", 10)
    results = by_name(table(example("m", 1, text=same), example("n", 0, text=same), example("o", 0)))
    assert results["no_text_on_both_sides"].offenders == ("m", "n")
    assert results["no_text_on_both_sides"].counts == {"texts on both sides": 1}
    assert not results["no_text_twice"].passed
    results = by_name(table(example("m", 1, text=same), example("l", 1, text=same), example("n", 0)))
    assert results["no_text_on_both_sides"].passed
    assert results["no_text_twice"].offenders == ("m", "l")
    assert results["no_text_twice"].counts == {"rows too many": 1}
    results = by_name(table(example("m", 1), example("m", 0, text=same)))
    assert not results["no_text_twice"].passed


def test_lengths_are_counted_again() -> None:
    results = by_name(table(example("m", 1, text=words_of("m", 9)), example("n", 0, words=9), example("o", 0)))
    assert results["exact_lengths"].offenders == ("m", "n")


def test_balance_is_checked_in_every_collection() -> None:
    examples = table(
        example("m", 1, collection="a"),
        example("n", 0, collection="b"),
        example("o", 1, collection="c"),
        example("p", 0, collection="c"),
    )
    check = by_name(examples)["balanced"]
    assert (check.passed, check.offenders) == (False, ("a", "b"))
    assert check.counts == {"members": 2, "nonmembers": 2, "collections": 3, "uneven collections": 2}
    relaxed = by_name(examples, temporal_spec(balance="none"))["balanced"]
    assert (relaxed.passed, relaxed.counts) == (True, check.counts)
    assert by_name(examples, labelled_spec(10))["balanced"].passed


def test_the_evaluation_split_needs_both_classes() -> None:
    assert not by_name(table(example("m", 1), example("l", 1)))["both_classes"].passed
    assert not by_name(table(example("m", 1), example("n", 0, split="calibration")))["both_classes"].passed
    assert not by_name(table())["both_classes"].passed
    assert by_name(table(example("u", None)), labelled_spec(10))["both_classes"].passed
    assert not by_name(table(example("u", None), example("m", 1)), labelled_spec(10))["both_classes"].passed


def test_a_divided_group_is_found() -> None:
    examples = table(
        example("m", 1, group="g"), example("l", 1, group="g", split="calibration"), example("n", 0, group="h")
    )
    check = by_name(examples)["groups_not_divided"]
    assert (check.passed, check.offenders) == (False, ("g",))
    assert check.counts == {"groups": 2, "divided groups": 1}


def test_dates_of_labelled_rows_are_not_checked() -> None:
    assert "dates_on_their_side" not in by_name(table(example("m", 1)), labelled_spec(10))


def test_offenders_are_capped_but_all_are_counted() -> None:
    check = by_name(table(*(example(f"m{number}", 1, words=9) for number in range(50))))["exact_lengths"]
    assert len(check.offenders) == checks.MAX_OFFENDERS
    assert check.counts == {"other lengths": 50}


def test_near_duplicates_are_counted_between_and_within_sides() -> None:
    words = words_of("w", 15).split()
    texts = [" ".join(words[start : start + 10]) for start in (0, 1, 2)]
    examples = table(
        example("m", 1, text=texts[0]),
        example("n", 0, text=texts[1]),
        example("o", 0, text=texts[2]),
        example("p", 0, text=f"{texts[2]} more", group="o"),
        example("q", 1),
    )
    check = by_name(examples)["near_duplicates"]
    # m-n .71, m-o .5, m-p 4/9; n-o .71, n-p .625 across groups; o-p in one group.
    assert (check.passed, check.blocking) == (False, False)
    assert check.counts == {
        "pairs between the sides": 2,
        "members in them": 1,
        "nonmembers in them": 2,
        "pairs of members of different groups": 0,
        "pairs of nonmembers of different groups": 2,
    }
    assert check.offenders == ("m", "n", "o")
    closer = by_name(examples, temporal_spec(near_duplicate_threshold=0.6))["near_duplicates"]
    assert closer.counts["pairs between the sides"] == 1


def test_a_reprinted_document_is_reported() -> None:
    # Windows of 40 in 41 words all hold the word in the middle, so no two of them are the same text. They share at
    # least 30 of their 36 shingles: 30 / (36 + 36 - 30) = .71.
    text = words_of("same", 41)
    documents = documents_table(
        [document("old", OLD, text=text), document("reprint", NEW, text=text.replace("same20", "changed"))]
    )
    spec = temporal_spec(words=40, windows_per_document=1)
    check = by_name(draw_temporal_windows(documents, spec, "run").examples, spec)["near_duplicates"]
    assert check.counts["pairs between the sides"] == 1
    assert not check.passed
