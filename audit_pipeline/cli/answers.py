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
    """What the report's first screen says of a model on a benchmark, in its order: what the scores come to, tests of
    the whole set, and what the model gives word for word. Returns the answer from scores, or None where there is
    none."""
    from audit_pipeline.report.page import conclusions_of
    from audit_pipeline.report.summary import sort_by_kind

    found = conclusions_of(paths.warehouse, model)
    answer, given = found.answers.get(benchmark), found.word_for_word.get(benchmark)
    tests = [test for test in found.tests if test["benchmark"] == benchmark and _is_test_shown(test)]
    for row in sort_by_kind([row for row in (answer, *tests, given) if row is not None]):
        if row is answer:
            say(visible("\n" + "\n".join(filter(None, _lines(row)))), answers=[row])
        elif row is given:
            words = f"\n{benchmark}: {row['headline']}\n{row['how_sure']}"
            say(visible(words), word_for_word=[{"benchmark": benchmark, **row}])
        else:
            say(visible(f"\n{benchmark}: {row['headline']}"), corpus_tests=[row])
    return answer


def _is_test_shown(test: Mapping[str, Any]) -> bool:
    """A test that was refused is told where somebody asked for it, by the command or by the benchmark's design."""
    return (
        test["outcome"] != "refused"
        or test["test"] != "dataset_inference"
        or test["design"] in ("exchangeable", "randomised")
    )


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
