"""What several commands say in the same way.

What belongs here: options' types, one finding in words. What does not: printing itself (console.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.console import say, tell, visible
from audit_pipeline.paths import DataPaths

if TYPE_CHECKING:
    from audit_pipeline.warehouse.report_document import Answer

FILE = click.Path(path_type=Path, dir_okay=False)


def tell_step(what: str) -> None:
    """One step of a longer piece of work, on standard error."""
    tell(f"• {what}")


def setting(parameters: str) -> str:
    """A detector's parameters, from their canonical JSON."""
    return " ".join(f"{name}={value}" for name, value in json.loads(parameters).items())


def say_conclusions(paths: DataPaths, model: str, benchmarks: Sequence[str]) -> None:
    """What the report's first screen says of a model on some benchmarks, and of tests of whole sets of them."""
    from audit_pipeline.warehouse.query import open_read_only
    from audit_pipeline.warehouse.report_background import tests_of
    from audit_pipeline.warehouse.report_pairs import read_answers
    from audit_pipeline.warehouse.report_provenance import read_settings
    from audit_pipeline.warehouse.report_summary import is_told_first

    with open_read_only(paths.warehouse) as connection:
        answers = read_answers(connection, read_settings(connection))
        tests = tests_of(connection, model)
    for benchmark in benchmarks:
        answer = answers.get((model, benchmark))
        if answer is not None:
            _say_answer(answer)
        for test in tests:
            if test.benchmark == benchmark and is_told_first(test):
                say(visible(test.headline if test.refused is None else f"{test.headline} Why: {test.refused}"))


def _say_answer(answer: Answer) -> None:
    from audit_pipeline.evaluation.claims import level_in_words
    from audit_pipeline.warehouse.report_numbers import interval, number, percent
    from audit_pipeline.warehouse.report_words import counted_words

    name = visible(answer.benchmark)
    if answer.sides == "none":
        say(
            f"\n{name}: no metrics, because none of its texts to evaluate is labelled; "
            "its scores are in the view scores_with_examples"
        )
        return
    say(visible(f"\n{name}: {answer.headline}\n{answer.explanation}"))
    if answer.warning:
        say(f"Few texts: {answer.warning}")
    level = level_in_words(answer.claim_level, answer.claim_stated_by) if answer.claim_level else "not evaluated"
    blind, rate = answer.blind, answer.blind_tpr_at_5_fpr
    control = (
        "not read"
        if blind is None or blind.value is None
        else f"AUROC {number(blind.value)} {interval((blind.low, blind.high))}".rstrip()
    )
    if rate is not None and rate.value is not None:
        control += f", TPR at 5% FPR {percent(rate.value)}"
    say(
        visible(f"{name}: {level}; split: {answer.split_verdict}; blind control, which never sees the model: {control}")
    )
    chosen = {"named": ", named beforehand", "alone": ", the only one"}.get(answer.detector_chosen or "", "")
    design = f"{answer.design}, stated by {answer.design_stated_by}" if answer.design_stated_by else answer.design
    told = [f"Detector: {answer.detector}{chosen}"] if answer.detector else []
    told += [f"labels: {answer.labels_by}"] if answer.labels_by else []
    say(visible("; ".join([*told, f"design: {design}"])))
    say(counted_words(answer.counted))
    documents = answer.documents
    if documents is not None and documents.calibration_groups_in_all not in (None, documents.calibration_groups):
        say(
            f"Documents were compared with at least {documents.calibration_groups} of the "
            f"{documents.calibration_groups_in_all} calibration documents, those with as many texts as are compared; "
            "thresholds are chosen on all."
        )


def with_interval(row: dict[str, Any], metric: str) -> str:
    """A metric of a row of the leaderboard with its interval."""
    value, low, high = row[metric], row[f"{metric}_low"], row[f"{metric}_high"]
    if value is None:
        return "not defined"
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
