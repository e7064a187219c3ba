"""The answer of a pair, concluded from its findings: written beside them, and for findings that have none.

What belongs here: gathering what the rules go by. What does not: the rules and the row (report/pair_answer.py).

Findings of earlier versions have no answer beside them. It is concluded from their files when the warehouse is built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.config import load_benchmarks
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import EVALUATIONS, EXAMPLES, PAIR_ANSWERS, SCORES, TABLES, Pair
from audit_pipeline.catalogue.lineage import LineageStep, entries_of, file_of, latest_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json_if_whole
from audit_pipeline.errors import AuditError
from audit_pipeline.models.config import load_models
from audit_pipeline.report.pair_answer import AskedPair, Setting, answer_pair

ANSWERS_VERSION = "1"
"""Of the rules and sentences of answers."""


def asked_pair(
    pair: Pair,
    manifest: Mapping[str, Any],
    examples: pa.Table,
    scores: pa.Table | None,
    *,
    config: Path | None = None,
    named: str | None = None,
) -> AskedPair:
    """What is known of a pair beside its findings; ``manifest`` and ``examples`` are the benchmark's.

    ``scores``: None where findings say which detectors there are.
    """
    spec = manifest.get("spec", {})
    unknown = pc.and_(pc.equal(examples["split"], "evaluation"), pc.is_null(examples["label"]))
    model_title, benchmark_title = _titles(pair, config)
    return AskedPair(
        model_title,
        benchmark_title,
        design=manifest.get("design"),
        design_stated_by=manifest.get("design_stated_by"),
        member_before=_as_text(spec.get("member_before")),
        nonmember_from=_as_text(spec.get("nonmember_from")),
        named=named,
        handed_over=spec.get("builder") == "given",
        audited=pc.count_distinct(examples.filter(unknown)["group"]).as_py(),
        scored=() if scores is None else _scored(scores),
    )


def _as_text(value: object) -> str | None:
    return None if value is None else str(value)


def _titles(pair: Pair, config: Path | None) -> tuple[str, str]:
    """What people call the model and the benchmark; their names where no entry says."""
    model = Path(pair.model).name if pair.model.startswith("/") else pair.model
    try:
        models, benchmarks = load_models(config), load_benchmarks(config)
    except AuditError:
        # A folder of findings alone has no configuration.
        return model, pair.benchmark
    of_model = models[pair.model].title if pair.model in models else None
    of_benchmark = benchmarks[pair.benchmark].title if pair.benchmark in benchmarks else None
    return of_model or model, of_benchmark or pair.benchmark


def _scored(scores: pa.Table) -> list[Setting]:
    """The settings with a score: those at their defaults, or all where none is."""
    found = scores.filter(pc.equal(scores["status"], "ok")).select(["detector", "parameters", "is_default"])
    rows = found.group_by(found.column_names).aggregate([]).to_pylist()
    return [(row["detector"], row["parameters"]) for row in ([row for row in rows if row["is_default"]] or rows)]


def answer_missing(paths: DataPaths, config: Path | None = None) -> None:
    """Conclude the answer of every pair that has scores or findings and no answer yet."""
    folders = {partition for table in (SCORES, EVALUATIONS) for partition, _ in store.partitions(paths, table)} - {
        partition for partition, _ in store.partitions(paths, PAIR_ANSWERS)
    }
    for partition in sorted(folders):
        pair = Pair(*partition.split("|", 1))
        try:
            _answer_again(pair, paths, config)
        except AuditError:
            # A damaged or missing file: whoever builds the warehouse names it.
            continue


def _answer_again(pair: Pair, paths: DataPaths, config: Path | None) -> None:
    versions: dict[str, str] = {}
    tables: dict[str, pa.Table] = {}
    for name in PAIR_ANSWERS.made_from:
        tables[name], version = _latest_rows(paths, name, pair)
        versions |= version
    scores = None
    if not len(tables["evaluations"]) and not len(tables["group_tests"]):
        scores, version = _latest_rows(paths, "scores", pair)
        versions |= version
    run = latest_run(paths, "scores" if scores is not None else "evaluations", pair.partition)
    manifest = read_json_if_whole(paths.benchmark_manifest(pair.benchmark)) or {}
    examples = store.read(paths, EXAMPLES, pair.benchmark, what=f"the examples of {pair.benchmark}")
    named = _named_headline(paths, pair)
    asked = asked_pair(pair, manifest, examples, scores, config=config, named=named)
    # A run of its own, in which no model was seen: what is known of the findings' run stays what it was.
    run_id = f"answer-{run.run_id}"
    store.write(
        paths,
        LineageStep.now(run_id, "warehouse", ANSWERS_VERSION),
        PAIR_ANSWERS,
        pair,
        answer_pair(pair, tables, asked, run_id).table(),
        upstream=versions,
        benchmark_digest=run.benchmark_digest,
    )


def _latest_rows(paths: DataPaths, name: str, pair: Pair) -> tuple[pa.Table, dict[str, str]]:
    """The rows that the latest run wrote to a table, and their version by its name; none where no run did."""
    table, partition = TABLES[name], pair.partition
    if not any(file_of(paths, table, partition, "any").parent.glob("*.parquet")):
        return table.empty_table(), {}
    run = latest_run(paths, name, partition)
    rows = store.read(paths, table, pair, run_id=run.run_id, what=f"the {name} of {partition}")
    return rows, {f"{name}/{partition}": run.data_version}


def _named_headline(paths: DataPaths, pair: Pair) -> str | None:
    """The detector that was named to answer when a user's own scores were evaluated."""
    entries = [entry for entry in entries_of(paths, "scores", pair.partition) if entry["settings"] is not None]
    latest = max(entries, key=lambda entry: entry["finished_at"], default=None)
    return None if latest is None else json.loads(latest["settings"]).get("headline")
