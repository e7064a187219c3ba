"""The command items: which items of a test set stand in a corpus, and what they do to an accuracy."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.cli.options import fail_on, json_option, note_state
from audit_pipeline.cli.shared import resolve_model_option
from audit_pipeline.operate.console import Columns, is_json_output, say, show_table, tell, tell_skipped
from audit_pipeline.operate.options import FILE
from audit_pipeline.report.number_format import estimate, percent, probability

if TYPE_CHECKING:
    import pyarrow as pa

    from audit_pipeline.overlap.items import CorpusFindings, Item
    from audit_pipeline.overlap.results import MatchedResults

_SHOWN = 20


@click.command()
@click.option("--benchmark", required=True, help="The test set: a benchmark that is built.")
@click.option("--corpus", help="A corpus that `overlap` searched for it. Default: the only one.")
@click.option("--model", help="A model that was audited on the benchmark, for its evidence.")
@click.option(
    "--results",
    type=FILE,
    help="A model's answers: samples_*.jsonl of lm-evaluation-harness, or rows with item and correct.",
)
@click.option(
    "--clean",
    type=FILE,
    help="Write the clean items to this .json file, as --samples of lm-evaluation-harness takes it.",
)
@fail_on("contaminated")
@json_option
def items(benchmark: str, corpus: str | None, model: str | None, results: Path | None, clean: Path | None) -> None:
    """Say of every item of a test set whether it stands in a corpus.

    One word for each item, with its reason; with --results the accuracy on contaminated and on clean items. Nothing is
    searched and no model is run: `overlap` and `audit` do that before. docs/overlap.md explains the words.
    """
    from audit_pipeline.benchmarks.built_benchmark import read_built
    from audit_pipeline.catalogue.contracts import EXAMPLES, Pair
    from audit_pipeline.catalogue.store import iterate_partitions
    from audit_pipeline.config.hints import resolve_partition
    from audit_pipeline.overlap.items import choose_corpus, judge_items, read_corpus_findings, read_model_evidence
    from audit_pipeline.overlap.results import list_clean_positions

    paths = DataPaths.from_environment()
    name = resolve_partition(benchmark, [built for built, _ in iterate_partitions(paths, EXAMPLES)])
    built = read_built(paths, name)
    evidence = None if model is None else read_model_evidence(paths, Pair(name, resolve_model_option(model).name))
    chosen = choose_corpus(paths, name, corpus, required=evidence is None)
    found = None if chosen is None else read_corpus_findings(paths, name, chosen)
    task, matched = str(built.manifest["family"]), None
    if results is not None:
        task, matched = _match_results_file(results, built.examples, built.manifest)
    judged = judge_items(built.examples, found, evidence, None if matched is None else matched.correct)
    if found is not None:
        _say_how_much_was_read(found)
    _show_items(judged)
    if matched is not None:
        _show_accuracy(judged)
    if clean is not None:
        from audit_pipeline.catalogue.files import write_atomically

        positions, unknown = list_clean_positions(judged, built.manifest, matched)
        # No digest within: the harness takes every key for a task.
        with write_atomically(clean) as temporary:
            temporary.write_text(json.dumps({task: positions}), encoding="utf-8")
        if unknown:
            tell(f"{unknown:,} clean item(s) are not among the results and so not in {clean}")
        say(f"{len(positions):,} clean items of the task {task} in {clean}", clean={"file": clean, "task": task})


def _match_results_file(path: Path, examples: pa.Table, manifest: Mapping[str, Any]) -> tuple[str, MatchedResults]:
    """The task's name and the results by item; what was taken, and what is left out, is reported."""
    from audit_pipeline.overlap.results import match_results, read_results

    file = read_results(path)
    tell_skipped(file.skipped.first, file.skipped.count)
    matched = match_results(file, examples, manifest)
    others = f"; not taken: {', '.join(file.other_measures)}" if file.other_measures else ""
    means = f"; of {matched.averaged:,} the mean of several answers is taken" if matched.averaged else ""
    say(
        f"Results: {file.kind}, {file.measure}{others}. {len(matched.correct):,} of {len(examples):,} items have one; "
        f"{matched.unmatched:,} result(s) belong to no item{means}.",
        results={
            "kind": file.kind,
            "measure": file.measure,
            "items": len(matched.correct),
            "unmatched": matched.unmatched,
            "averaged": matched.averaged,
            "skipped": file.skipped.count,
        },
    )
    return file.task or str(manifest["family"]), matched


def _say_how_much_was_read(found: CorpusFindings) -> None:
    read = found.overlap.slice(0, 1).to_pylist()[0]
    words = (
        "all of it was read" if read["is_complete"] else f"{read['shards_read']} of {read['shards']} shards were read"
    )
    facts = {name: read[name] for name in ("rule", "n", "shards_read", "shards", "is_complete")}
    say(f"Corpus {found.corpus}: {words}; rule {read['rule']}", corpus={"name": found.corpus, **facts})


def _show_items(judged: Sequence[Item]) -> None:
    """The items that are not clean (the first of them), worst first, and the counts."""
    from audit_pipeline.overlap.items import VERDICTS

    counts = Counter(item.verdict for item in judged)
    shown = sorted(
        (item for item in judged if item.verdict != "clean"),
        key=lambda item: (VERDICTS.index(item.verdict), -(item.covered or 0), item.document_id, item.example_id),
    )
    rows = [asdict(item) for item in (judged if is_json_output() else shown[:_SHOWN])]
    columns: Columns = [
        ("item", "document_id"),
        ("verdict", "verdict"),
        ("covered", "covered", percent),
        ("first place", "first_place"),
        ("reason", "reason"),
    ]
    show_table("items", rows, columns)
    if len(shown) > _SHOWN:
        say(f"and {len(shown) - _SHOWN:,} more that are not clean (--json lists all)")
    if counts["contaminated"]:
        note_state("contaminated")
    listed = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in VERDICTS if counts[verdict])
    say(f"{len(judged):,} items: {listed}", counts={verdict: counts[verdict] for verdict in VERDICTS})


def _show_accuracy(judged: Sequence[Item]) -> None:
    from audit_pipeline.overlap.items import VERDICTS
    from audit_pipeline.overlap.results import DIFFERENCE_CAVEAT, compare_accuracy, measure_accuracy

    kinds = [("all", VERDICTS), *((verdict, (verdict,)) for verdict in VERDICTS)]
    rates = [{"items": name, **asdict(measure_accuracy(judged, *verdicts))} for name, verdicts in kinds]
    columns = [("items", "items"), ("with a result", "n"), ("groups", "n_groups")]
    show_table(
        "accuracy",
        [rate for rate in rates if rate["n"]],
        [*columns, ("accuracy", lambda row: estimate(row["value"], row["low"], row["high"], "z.1%"))],
    )
    compared = compare_accuracy(judged)
    shown = estimate(compared.difference, compared.interval.low, compared.interval.high, "+z.1%", "not known")
    say(
        f"Contaminated less clean: {shown}, p = {probability(compared.p_value)} ({compared.method}).\n"
        f"{DIFFERENCE_CAVEAT}",
        comparison={**asdict(compared), "caveat": DIFFERENCE_CAVEAT},
    )
