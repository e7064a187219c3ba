"""Results of every model and benchmark with their sentences, their order on pages, and the limits of pages.

A page with all details of thousands of pairs would take an hour to write, and no browser could open it. The warehouse
contains everything that the report omits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

from audit_pipeline.report import document_answers, sentences, summary
from audit_pipeline.statistics.evaluate_options import choose_headline_detector

Row = dict[str, Any]
Pair = tuple[str, str]

MAX_ANSWERS = 300
"""Maximum number of answers on a page, one line each."""
MAX_SECTIONS = 12
"""Maximum number of evidence sections on a model's page. A section has two pictures and as many tables."""
MAX_PICTURED = 40
"""Maximum number of evidence sections on all pages together, if every model has at least one."""


@dataclass(frozen=True)
class Results:
    """Results with their sentences, of all models or of one page.

    Attributes:
        answers: Answers from scores, one per model and benchmark.
        tests: Tests of whole sets.
        searches: Searches for passages that a model continues word for word.
        chats: Questions to models that answer in words.
        checks: Rows of the instrument check.
    """

    answers: Sequence[Row]
    tests: Sequence[Row]
    searches: Sequence[Row]
    chats: Sequence[Row]
    checks: Sequence[Row]

    def select(self, is_shown: Callable[[str], bool]) -> Results:
        """Return the results of the models for which ``is_shown`` returns True."""

        def select_rows(rows: Sequence[Row]) -> list[Row]:
            return [row for row in rows if is_shown(row["model"])]

        return Results(
            select_rows(self.answers),
            select_rows(self.tests),
            select_rows(self.searches),
            select_rows(self.chats),
            self.checks,
        )

    @cached_property
    def tests_done(self) -> list[Row]:
        """Return the tests that were not refused."""
        return [test for test in self.tests if test["refused"] is None]

    @cached_property
    def models(self) -> list[str]:
        """Return the sorted names of all models with a result."""
        rows = (*self.answers, *self.tests, *self.searches, *self.chats)
        return sorted(set(map(itemgetter("model"), rows)))

    @cached_property
    def by_pair(self) -> Mapping[Pair, Sequence[Row]]:
        """Return all results of each model and benchmark: chats, searches, tests, answers."""
        results: dict[Pair, list[Row]] = defaultdict(list)
        for row in (*self.chats, *self.searches, *self.tests_done, *self.answers):
            results[row["model"], row["benchmark"]].append(row)
        return results


def describe_results(
    answers: Iterable[Row], tests: Iterable[Row], searches: Iterable[Row], chats: Iterable[Row], checks: Sequence[Row]
) -> Results:
    """Add sentences to the rows of the tables that sql/answers.sql creates."""
    return Results(
        answers=list(map(_describe_answer, answers)),
        tests=list(map(_describe_test, tests)),
        searches=list(map(_describe_search, searches)),
        chats=list(map(_describe_chat, chats)),
        checks=_mark_headline_detectors(checks),
    )


def _describe_answer(row: Row) -> Row:
    stated_by = row["claim_stated_by"]
    claim_in_words = None
    if row["claim_level"] is not None:
        claim_in_words = sentences.describe_claim_level(row["claim_level"], stated_by)
    verdict_in_words = None
    if row["split_verdict"] is not None:
        verdict_in_words = sentences.describe_verdict(row["split_verdict"], stated_by)
    scored = None
    if row["raw_scored_part"] is not None:
        scored = sentences.render_phrase("scored_part", {"scored_part": row["raw_scored_part"]})
    labels_by = sentences.describe_label_origin(row["raw_builder"], row["raw_origin"], row["design_stated_by"])
    return {
        **row,
        **_describe_attempted(row),
        "labels_by": labels_by,
        "scored": scored,
        "claim_in_words": claim_in_words,
        "verdict_in_words": verdict_in_words,
        "what_would_change": _join_with_suggestions(row),
        "brief": sentences.render_phrase("brief_of_scores", row),
        "design_in_words": sentences.describe_design(row["design"], row["raw_builder"], row["design_stated_by"]),
    }


def _join_with_suggestions(row: Row) -> str:
    """Return what would change the answer, followed by a suggestion of methods that were not tried yet."""
    methods_done = []
    if row["raw_searched"]:
        methods_done.append("search")
    if row["raw_twins"]:
        methods_done.append("twins")
    suggestions = sentences.suggest_methods(row["outcome"], methods_done)  # type: ignore[arg-type]
    return " ".join(filter(None, (row["what_would_change"], suggestions)))


def _describe_test(row: Row) -> Row:
    stated_by = summary.find_test_claim_source(row, row["raw_design_stated_by"], row["raw_blind"])
    return {**row, **summary.describe_set_test(row, handed_over=row["raw_handed_over"], stated_by=stated_by)}


def _describe_search(row: Row) -> Row:
    counts = {
        **row,
        "without_window": row["raw_without_window"],
        "stand_out": row["raw_stand_out"],
        "window": row["prefix_tokens"] + row["suffix_tokens"],
        "grid": bool(row["grid_settings"]),
        "asked": row["raw_asked"],
        "design_stated_by": row["raw_design_stated_by"],
    }
    answer = document_answers.describe_search_answer(
        row["model_title"], row["benchmark_title"], counts, has_answers=row["stride"] == "answers"
    )
    return {**row, **answer, **_describe_attempted(row)}


def _describe_attempted(row: Row) -> Row:
    attempted = row["raw_attempted"]
    return {"tried": sentences.describe_attempts(attempted), "planned": sentences.describe_plan(attempted)}


def _describe_chat(row: Row) -> Row:
    return {**row, **document_answers.describe_chat_answer(row["model_title"], row["benchmark_title"], row)}


def _mark_headline_detectors(checks: Sequence[Row]) -> list[Row]:
    """Add the column ``answers`` to the rows about controls.

    It is True if the row's detector is the headline detector among all detectors of the row's control.
    """
    detectors: dict[str, set[str]] = defaultdict(set)
    for check in checks:
        detectors[check["control"]].add(check["detector"])
    marked = []
    for check in checks:
        headline = choose_headline_detector(detectors[check["control"]])
        marked.append({**check, "answers": check["detector"] == headline})
    return marked


def sort_by_importance(answers: Sequence[Row]) -> list[Row]:
    """Sort answers by importance.

    Answers of the current benchmark come first. Then the outcome decides, the number of documents that stand out, and
    the lower bound of the AUROC.
    """
    return sorted(answers, key=_build_importance_key)


def _build_importance_key(answer: Mapping[str, Any]) -> tuple[object, ...]:
    auroc = answer["auroc"]
    lower_bound = -1.0
    if auroc and auroc["low"] is not None:
        lower_bound = auroc["low"]
    n_standing_out = 0
    if answer["documents"]:
        n_standing_out = answer["documents"]["standing_out"]
    place = sentences.find_kind(answer["outcome"]).place
    return not answer["is_current"], place, -n_standing_out, -lower_bound, answer["model"], answer["benchmark"]


def max_sections_per_model(n_models: int) -> int:
    """Return the maximum number of evidence sections per page if the report has ``n_models`` pages."""
    return max(1, min(MAX_SECTIONS, MAX_PICTURED // max(1, n_models)))
