"""The joint list of ``corpus-audit items --joint``: the items of a benchmark that are clean for several models.

The statistics are in statistics/joint_clean_list.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.cli import run_setup
from audit_pipeline.cli.output import format_detector_cell
from audit_pipeline.cli.shared_options import record_exit_state
from audit_pipeline.errors import ConfigError, DataError, escape_unprintable
from audit_pipeline.extras.corpora import command_actions, joint_scores
from audit_pipeline.extras.corpora.item_verdicts import BenchmarkItem, Verdict
from audit_pipeline.extras.corpora.joint_scores import ModelScores
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.console import Columns, Row
from audit_pipeline.report.number_format import (
    format_probability,
    format_target_rate,
    format_thousands,
    format_yes_or_no,
)
from audit_pipeline.statistics.joint_clean_list import JointCleanList, compute_joint_clean_list
from audit_pipeline.statistics.roc import Bools, Floats
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import MEMBER
from audit_pipeline.warehouse.query import export_table, require_export_file

CLAIM = (
    "The list is about scores, relative to the calibration items and the detector: the calibration items must be "
    "contaminated in the same way as the items that a model may have read."
)
_SHOWN_ITEMS = 20


_MODELS: Columns = (
    ("model", "model"),
    ("detector", format_detector_cell),
    ("calibration items", "n_calibration", format_thousands),
    ("members of", "members_of"),
    ("design", "design"),
    ("smallest p", "smallest_p_value", format_probability),
)


def print_joint_list(
    benchmark: str,
    models: Sequence[ModelEntry],
    members: Sequence[str],
    *,
    detector: str | None,
    rate: float,
    out: Path | None,
    results: Path | None,
    clean: Path | None,
) -> None:
    """Compute the list, print it, and write the files that the user named.

    Args:
        benchmark: Name of the benchmark of the items, or of its family.
        models: The models.
        members: The benchmarks whose members are the calibration items, as for :func:`joint_scores.assign_members`.
        detector: Detector of all models. None: the headline detector of each model's audit.
        rate: Maximum expected share of contaminated items in the list.
        out: File for all items. None: no file is written.
        results: File with a model's results on the items, for the accuracy on clean items.
        clean: File for the positions of the clean items in the data set.

    Raises:
        AuditError: If the list is refused, or if a file or an audit is missing.
    """
    if out is not None:
        require_export_file(out)
        _require_distinct_columns([entry.name for entry in models])
    paths = DataPaths.from_environment()
    built = read_built(paths, run_setup.resolve_built_benchmark(benchmark, paths))
    members_of_model: dict[str, BuiltBenchmark] = {}
    for model, name in joint_scores.assign_members(members, [entry.name for entry in models], built.name).items():
        members_of_model[model] = read_built(paths, run_setup.resolve_built_benchmark(name, paths))
    model_scores: list[ModelScores] = []
    for entry in models:
        known_members = members_of_model[entry.name]
        model_scores.append(joint_scores.read_model_scores(paths, built, known_members, entry, detector))
    known = joint_scores.find_known_items(built, model_scores)
    is_known = np.array([reason is not None for reason in known])
    if is_known.all():
        raise DataError(
            f"every item of {built.name} has the text of a labelled member, so no item is left to test. Add the items "
            "to test to the benchmark, without a label."
        )
    tested_scores: dict[str, Floats] = {}
    calibration: dict[str, Floats] = {}
    for scored in model_scores:
        tested_scores[scored.model] = np.where(is_known, np.nan, scored.scores)
        calibration[scored.model] = scored.calibration
    clean_list = compute_joint_clean_list(tested_scores, calibration, rate)
    table = build_item_table(built, model_scores, known, clean_list)
    _show_models(model_scores)
    _show_items(table, clean_list, [entry.name for entry in models])
    _show_counts(built.name, rate, clean_list, n_items=len(table), n_known=int(is_known.sum()))
    _record_exit_states(built, model_scores, is_known, clean_list)
    # The file is written first, because --clean is refused if no item is clean.
    if out is not None:
        rows = export_table(table, "the items", out)
        console.print_result(f"{rows:,} items in {escape_unprintable(str(out))}", out=out)
    if results is not None or clean is not None:
        _use_list(built, table, is_known, results, clean)


def _require_distinct_columns(models: Sequence[str]) -> None:
    """Raise ConfigError if the names of two models differ only in case.

    DuckDB ignores the case of column names, so it would rename the column of the second model.
    """
    name_of_column: dict[str, str] = {}
    for model in models:
        other = name_of_column.setdefault(model.lower(), model)
        if other != model:
            raise ConfigError(
                f"the names of {other} and {model} differ only in case, so --out cannot write a column for each of "
                "them. Rename one of the models, or use --json instead of --out."
            )


def _record_exit_states(
    built: BuiltBenchmark, model_scores: Sequence[ModelScores], is_known: Bools, clean_list: JointCleanList
) -> None:
    """Record the states of the items for ``--fail-on``. Calibration items do not count.

    The labelled members of the benchmark are calibration items if they calibrate at least one model.
    """
    is_counted = np.ones(len(is_known), dtype=np.bool_)
    if any(scored.members.name == built.name for scored in model_scores):
        is_counted = np.array([label != MEMBER for label in built.examples["label"].to_pylist()])
    if (is_known & is_counted).any():
        record_exit_state("contaminated")
    if (~clean_list.clean_bh & is_counted).any():
        record_exit_state("not-clean")


def build_item_table(
    built: BuiltBenchmark, model_scores: Sequence[ModelScores], known: Sequence[str | None], clean_list: JointCleanList
) -> pa.Table:
    """Return the table of all items, in the order of the benchmark.

    The column ``p_value_MODEL`` is the p-value by a model, and ``p_value`` is the largest of them. The column
    ``reason`` states why an item was not tested.

    Args:
        built: The benchmark of the items.
        model_scores: The scores of the models.
        known: Why an item is known to be contaminated, by position.
        clean_list: The joint list.
    """
    columns = {name: built.examples[name] for name in ("example_id", "document_id", "group")}
    for model, values in clean_list.model_p_values.items():
        columns[f"p_value_{model}"] = _build_nullable(values)
    columns["p_value"] = _build_nullable(clean_list.p_value)
    columns["q_bh"] = _build_nullable(clean_list.q_bh)
    columns["q_by"] = _build_nullable(clean_list.q_by)
    columns["clean_bh"] = pa.array(clean_list.clean_bh)
    columns["clean_by"] = pa.array(clean_list.clean_by)
    reasons: list[str | None] = []
    for position, example_id in enumerate(columns["example_id"].to_pylist()):
        reason = known[position]
        if reason is None and np.isnan(clean_list.p_value[position]):
            reason = _describe_missing_scores(model_scores, position, example_id)
        reasons.append(reason)
    columns["reason"] = pa.array(reasons, pa.string())
    return pa.table(columns)


def _build_nullable(values: Floats) -> pa.Array:
    """Return an array of Arrow in which NaN is null."""
    return pa.array(values, from_pandas=True)


def _describe_missing_scores(model_scores: Sequence[ModelScores], position: int, example_id: str) -> str:
    parts: list[str] = []
    for scored in model_scores:
        if np.isnan(scored.scores[position]):
            parts.append(f"{scored.model} ({scored.reasons.get(example_id, 'not scored')})")
    return f"no score by {'; '.join(parts)}"


def _show_models(model_scores: Sequence[ModelScores]) -> None:
    rows: list[Row] = []
    for scored in model_scores:
        rows.append(
            {
                "model": scored.model,
                "detector": scored.detector,
                "parameters": json.loads(scored.parameters),
                "members_of": scored.members.name,
                "design": scored.members.design,
                "n_members": scored.n_members,
                "n_calibration": len(scored.calibration),
                "smallest_p_value": 1 / (len(scored.calibration) + 1),
            }
        )
    console.show_table("models", rows, _MODELS)


def _show_items(table: pa.Table, clean_list: JointCleanList, models: Sequence[str]) -> None:
    """Print the tested items with the smallest p-values, or add all items to the JSON document."""
    rows = table.to_pylist()
    if not console.is_json_output():
        tested = [row for row in rows if row["p_value"] is not None]
        rows = sorted(tested, key=lambda row: (row["p_value"], row["document_id"], row["example_id"]))[:_SHOWN_ITEMS]
    console.show_table("items", rows, _list_item_columns(models))
    if clean_list.n_tested > _SHOWN_ITEMS:
        console.print_result(
            f"{clean_list.n_tested - _SHOWN_ITEMS:,} further tested item(s) have larger p-values, or equal p-values. "
            "Use --out or --json to list all items."
        )


def _show_counts(benchmark: str, rate: float, clean_list: JointCleanList, *, n_items: int, n_known: int) -> None:
    """Print the numbers of listed and of untested items, the minimum lengths of the lists, and the claim."""
    n_bh = int(clean_list.clean_bh.sum())
    n_by = int(clean_list.clean_by.sum())
    n_without_score = n_items - n_known - clean_list.n_tested
    console.print_result(
        f"{benchmark}: {n_bh:,} of {clean_list.n_tested:,} tested items are listed as clean for every model "
        "(Benjamini-Hochberg). The expected share of contaminated items in the list is at most "
        f"{format_target_rate(rate)}. A list that allows for any dependence of the items has {n_by:,} "
        "(Benjamini-Yekutieli).\n"
        f"Not tested: {n_known:,} item(s) known to be contaminated, {n_without_score:,} item(s) without a score by at "
        "least one model.\n"
        f"{_describe_shortest_lists(clean_list)}\n{CLAIM}",
        joint={
            "benchmark": benchmark,
            "rate": rate,
            "items": n_items,
            "tested": clean_list.n_tested,
            "known_contaminated": n_known,
            "clean_bh": n_bh,
            "clean_by": n_by,
            "smallest_p_value": clean_list.smallest_p_value,
            "min_listed_bh": clean_list.min_listed_bh,
            "min_listed_by": clean_list.min_listed_by,
            "claim": CLAIM,
        },
    )


def _list_item_columns(models: Sequence[str]) -> Columns:
    columns: list[tuple[str, str] | tuple[str, str, Callable[[Any], str]]] = [
        ("item", "example_id"),
        ("document", "document_id"),
    ]
    for model in models:
        columns.append((f"p of {model}", f"p_value_{model}", format_probability))
    columns.append(("largest p", "p_value", format_probability))
    columns.append(("q (BH)", "q_bh", format_probability))
    columns.append(("q (BY)", "q_by", format_probability))
    columns.append(("clean (BH)", "clean_bh", format_yes_or_no))
    columns.append(("clean (BY)", "clean_by", format_yes_or_no))
    return columns


def _describe_shortest_lists(clean_list: JointCleanList) -> str:
    """Return the minimum lengths of the lists, which depend on the number of calibration items."""
    smallest = format_probability(clean_list.smallest_p_value)
    sentence = (
        f"The calibration items allow no p-value below {smallest}, so a list that is not empty has at least "
        f"{clean_list.min_listed_bh:,} item(s) (Benjamini-Hochberg)"
    )
    if clean_list.min_listed_by > clean_list.n_tested:
        return f"{sentence}, and the list of Benjamini-Yekutieli is always empty."
    return f"{sentence} or {clean_list.min_listed_by:,} (Benjamini-Yekutieli)."


def _use_list(
    built: BuiltBenchmark, table: pa.Table, is_known: Bools, results: Path | None, clean: Path | None
) -> None:
    """Print the accuracy by verdict, and write the positions of the clean items, as ``items`` does without --joint.

    The verdict of an item is *clean* if ``clean_bh`` lists it, *contaminated* if it is known to be contaminated, and
    otherwise *unknown*.
    """
    task = str(built.manifest["family"])
    matched = None
    correct: Mapping[str, float] = {}
    if results is not None:
        task, matched = command_actions.match_results_file(results, built.examples, built.manifest)
        correct = matched.correct
    judged: list[BenchmarkItem] = []
    for position, row in enumerate(table.to_pylist()):
        verdict: Verdict = "unknown"
        if is_known[position]:
            verdict = "contaminated"
        elif row["clean_bh"]:
            verdict = "clean"
        judged.append(
            BenchmarkItem(
                row["example_id"],
                row["document_id"],
                row["group"],
                verdict,
                row["reason"] or "",
                correct=correct.get(row["example_id"]),
            )
        )
    if matched is not None:
        command_actions.print_accuracy(judged)
    if clean is not None:
        command_actions.write_clean_items(clean, task, judged, built.manifest, matched)
