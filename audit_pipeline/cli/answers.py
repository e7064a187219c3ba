"""What the terminal says of a model on a benchmark: the same as the report's first screen; and what is left out of it.

What belongs here: a part of the report in a few lines, or as it is in JSON. What does not: what an answer is and its
words (report/).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.operate.console import say, tell, visible

_NAMED = 5


def say_conclusions(paths: DataPaths, model: str, benchmark: str) -> Mapping[str, Any] | None:
    """What the report's first screen says of a model on a benchmark: what the model gives word for word and what the
    scores come to, in the order of what they came to, then tests of the whole set. Returns the answer from scores, or
    None where there is none."""
    from audit_pipeline.report.kinds import SIGNS
    from audit_pipeline.report.page import conclusions_of
    from audit_pipeline.report.summary import is_shown_first

    found = conclusions_of(paths.warehouse, model)
    answer, given = found.answers.get(benchmark), found.word_for_word.get(benchmark)
    told: list[tuple[str, str, dict[str, list[Any]]]] = []
    if given is not None:
        words = f"\n{benchmark}: {given['headline']}\n{given['how_sure']}"
        told.append((given["sign"], words, {"word_for_word": [{"benchmark": benchmark, **given}]}))
    if answer is not None:
        told.append((answer["sign"], "\n" + "\n".join(filter(None, _lines(answer))), {"answers": [answer]}))
    for _, words, as_json in sorted(told, key=lambda one: SIGNS.index(one[0])):
        say(visible(words), **as_json)
    for test in found.tests:
        if test["benchmark"] == benchmark and is_shown_first(test):
            say(visible(test["headline"]), corpus_tests=[test])
        elif test["benchmark"] == benchmark and test["design"] in ("exchangeable", "randomised"):
            say(visible(f"{test['headline']} Why: {test['refused']}"), corpus_tests=[test])
    return answer


def tell_left_out(paths: DataPaths) -> None:
    """The damaged files whose rows are not in the warehouse, by name, on standard error."""
    from audit_pipeline.warehouse.query import open_read_only

    with open_read_only(paths.warehouse) as connection:
        statement = (
            'SELECT "table", "partition", run_id, left_out FROM files_gone WHERE left_out IS NOT NULL ORDER BY ALL'
        )
        found = connection.execute(statement).fetchall()
    for table, partition, run_id, reason in found[:_NAMED]:
        words = f"damaged, and left out: {table} of {partition} (run {run_id}): {reason}"
        tell(f"{words}; corpus-audit doctor --deep names the file", style="yellow")
    if len(found) > _NAMED:
        tell(f"and {len(found) - _NAMED} more damaged files: corpus-audit doctor --deep", style="yellow")


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    from audit_pipeline.report.words import counted_words

    if answer["sides"] == "none":
        yield f"{answer['benchmark']}: {answer['headline']}"
        yield "None of its texts to evaluate is labelled; its scores are in the view scores_with_examples"
        return
    yield f"{answer['benchmark']}: {answer['headline']}"
    yield answer["explanation"]
    if answer["warning"]:
        yield f"Few texts: {answer['warning']}"
    yield _level(answer)
    yield _provenance(answer)
    yield counted_words(answer["counted"])
    if answer["not_scored"]:
        yield f"Labelled texts without a score by {answer['detector']}: {answer['not_scored']:,}"
    documents = answer["documents"]
    if documents is not None and documents["calibration_groups_in_all"] not in (None, documents["calibration_groups"]):
        yield (
            f"Documents were compared with at least {documents['calibration_groups']} of the "
            f"{documents['calibration_groups_in_all']} calibration documents, those with as many texts as are "
            "compared; thresholds are chosen on all."
        )


def _level(answer: Mapping[str, Any]) -> str:
    """The claim level, and what the blind control makes of the same texts."""
    from audit_pipeline.metrics.claims import level_in_words
    from audit_pipeline.report.numbers import interval, number, percent

    level = (
        level_in_words(answer["claim_level"], answer["claim_stated_by"]) if answer["claim_level"] else "not evaluated"
    )
    blind, rate = answer["blind"], answer["blind_tpr_at_5_fpr"]
    control = (
        "not computed"
        if blind is None or blind["value"] is None
        else f"AUROC {number(blind['value'])} {interval((blind['low'], blind['high']))}".rstrip()
    )
    if rate is not None and rate["value"] is not None:
        control += f", TPR at 5% FPR {percent(rate['value'])}"
    return (
        f"{answer['benchmark']}: {level}; split: {answer['split_verdict']}; "
        f"blind control, which never sees the model: {control}"
    )


def _provenance(answer: Mapping[str, Any]) -> str:
    """Which detector answers, who made the labels, and who stated the design."""
    chosen = {"named": ", named beforehand", "alone": ", the only one"}.get(answer["detector_chosen"] or "", "")
    design = (
        f"{answer['design']}, stated by {answer['design_stated_by']}"
        if answer["design_stated_by"]
        else answer["design"]
    )
    told = [f"Detector: {answer['detector']}{chosen}"] if answer["detector"] else []
    told += [f"labels: {answer['labels_by']}"] if answer["labels_by"] else []
    return "; ".join([*told, f"design: {design}"])
