"""The inputs of a comparison: its texts, each model's values for the texts, and the extraction results of documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline import tables
from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.benchmarks.model_inputs import TEMPLATE, build_example_inputs
from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.detectors.min_k import MIN_K as DETECTOR
from audit_pipeline.detectors.min_k import compute_lowest_means
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.memorisation import LIKELIEST
from audit_pipeline.extras.unlearning import comparison_rows
from audit_pipeline.extras.unlearning.measures import compute_exact_memorization, compute_extraction_strength
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Bools
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.ledger import has_entries, read_latest_run
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.cached_texts import read_statistics

RULES = ("marginal", "certified")
"""The rules that choose a threshold for calling a text a member. The first rule with a threshold is used."""
ALPHA = 0.05
_SHARE = 0.4
"""The share K of the Min-K% score ``MIN_40``."""
_UNITS = {"document_id": "document(s)", "group": "group(s)"}
"""The columns of EXAMPLES in which two benchmarks must not have the same values, with the nouns for messages."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The n texts of a comparison: first the texts to be forgotten, then the held-out texts.

    Attributes:
        examples: The texts with the columns of EXAMPLES, including the labels and splits of their benchmarks.
        forget: A mask of shape (n,) of the texts to be forgotten.
    """

    examples: pa.Table
    forget: Bools

    @property
    def groups(self) -> list[str]:
        """Return the group of each text."""
        groups: list[str] = self.examples["group"].to_pylist()
        return groups

    def take(self, mask: Bools) -> Sides:
        """Return the texts that a mask selects."""
        return Sides(self.examples.filter(pa.array(mask)), self.forget[mask])


def read_sides(forget: BuiltBenchmark, holdout: BuiltBenchmark) -> Sides:
    """Return the texts to be forgotten and the held-out texts of a comparison.

    If both benchmarks are the same, its members are to be forgotten and its non-members are held out. If the texts of
    its evaluation split have no labels, they count as members, and the calibration non-members are held out. If the
    benchmarks differ, all their texts are compared.

    Raises:
        DataError: If there are no texts to be forgotten or no held-out texts, or if a text is both. Also if two
            benchmarks share documents or groups.
    """
    parts = [forget.examples, holdout.examples]
    if forget.name == holdout.name:
        parts = _split_benchmark(forget)
    for part, benchmark, purpose in zip(
        parts, (forget, holdout), ("be forgotten", "compare with the texts to be forgotten"), strict=True
    ):
        if not len(part):
            raise DataError(
                f"{benchmark.name} has no texts to {purpose}. Give other benchmarks with --forget and --holdout."
            )
    shared_texts = set(tables.build_model_inputs(parts[0])) & set(tables.build_model_inputs(parts[1]))
    if shared_texts:
        raise DataError(
            f"{len(shared_texts)} text(s) are both to be forgotten (in {forget.name}) and held out (in "
            f"{holdout.name}). Choose benchmarks without common texts with --forget and --holdout."
        )
    if forget.name != holdout.name:
        _require_disjoint(forget, holdout)
    is_forget = np.repeat([True, False], [len(part) for part in parts])
    return Sides(pa.concat_tables([part.select(tables.EXAMPLES.names) for part in parts]), is_forget)


def _split_benchmark(benchmark: BuiltBenchmark) -> list[pa.Table]:
    """Return the members and the non-members among the texts to evaluate, as two tables.

    Audited texts that count as members get new labels for the selection only. The tables keep the original labels.
    """
    evaluated = relabel_for_comparison(benchmark.examples)
    evaluated = evaluated.filter(pc.equal(evaluated["split"], "evaluation"))
    parts = []
    for label in (tables.MEMBER, tables.NON_MEMBER):
        ids = evaluated.filter(pc.equal(evaluated["label"], label))["example_id"]
        parts.append(benchmark.examples.filter(pc.is_in(benchmark.examples["example_id"], value_set=ids)))
    return parts


def _require_disjoint(forget: BuiltBenchmark, holdout: BuiltBenchmark) -> None:
    """Raise DataError if two benchmarks share documents or groups.

    The windows of one document differ, but a model may have read all of them.
    """
    shared = []
    for column, noun in _UNITS.items():
        forget_values = set(forget.examples[column].to_pylist())
        count = len(forget_values.intersection(holdout.examples[column].to_pylist()))
        if count:
            shared.append(f"{count} {noun}")
    if shared:
        raise DataError(
            f"{forget.name} and {holdout.name} share {' and '.join(shared)}, so a model may have read the held-out "
            "documents. Give a benchmark of other documents with --holdout."
        )


def compute_text_values(model: TokenizedModel, sides: Sides, share: float, paths: DataPaths) -> comparison_rows.Values:
    """Compute a model's values of each text from cached statistics.

    Args:
        model: The model.
        sides: The n texts.
        share: The share K of the Min-K% score.
        paths: The data folder.

    Returns:
        Float arrays of shape (n,) by name. They are NaN if no token of a text is scored, or if the chat template of the
        model refuses it. The values of
        ``FIRST_CHOICES`` are NaN if the model's interface does not return first choices.

    Raises:
        DataError: If the model has not been run on all texts. The message contains the command.
    """
    inputs = build_example_inputs(sides.examples, model)
    texts = inputs.texts
    index = StatisticsIndex(read_statistics(model, texts, paths), model.has_statistic)
    statistics_by_text = list(map(index.find, texts, inputs.spans))
    # The chat template of the model refuses some conversations. They have no values.
    is_refused = np.array([example_id in inputs.refusals for example_id in inputs.example_ids], dtype=np.bool_)
    is_missing = np.array([statistics is None for statistics in statistics_by_text], dtype=np.bool_) & ~is_refused
    if is_missing.any():
        counts = sides.take(is_missing).examples["benchmark"].value_counts().to_pylist()
        name = counts[0]["values"]
        raise DataError(
            f"{model.entry.name} has not been run on {counts[0]['counts']} text(s) of {name}. Run the model: "
            f"corpus-audit audit --model {model.entry.name} --benchmark {name}"
        )
    rows = np.full((len(texts), len(comparison_rows.TEXT_MEASURES) + 2), np.nan)
    for row, statistics in zip(rows, statistics_by_text, strict=True):
        if statistics is None or not len(statistics):
            continue
        if statistics.explain_absent_columns(comparison_rows.FIRST_CHOICE_COLUMNS) is None:
            matches = statistics.argmax_id == statistics.token_id
            row[0] = compute_exact_memorization(matches)
            row[1] = compute_extraction_strength(matches)
        row[2] = statistics.logprob.mean(dtype=np.float64)
        row[3:] = compute_lowest_means(statistics.logprob, (_SHARE, share))
    return dict(
        zip((*comparison_rows.TEXT_MEASURES, comparison_rows.MIN_40, comparison_rows.MIN_K), rows.T, strict=True)
    )


def find_calibration_texts(sides: Sides, threshold: comparison_rows.ThresholdBefore) -> Bools:
    """Return a mask of shape (n,) of the calibration texts from which the threshold was chosen."""
    examples = sides.examples
    is_calibration = pc.and_(pc.equal(examples["split"], "calibration"), pc.equal(examples["label"], tables.NON_MEMBER))
    is_of_benchmark = pc.equal(examples["benchmark"], threshold.benchmark or "")
    mask = pc.and_(pc.fill_null(is_calibration, False), is_of_benchmark)
    return np.asarray(mask.to_numpy(zero_copy_only=False))


def read_threshold(
    model: TokenizedModel, benchmarks: Iterable[BuiltBenchmark], paths: DataPaths
) -> comparison_rows.ThresholdBefore:
    """Return the Min-K% threshold of ``model`` for calling a text a member, with an error rate of 5%.

    The threshold comes from the first benchmark that has a threshold. If no benchmark has a threshold, the result
    contains the reasons.
    """
    reasons = []
    for benchmark in benchmarks:
        threshold = _read_threshold_on(benchmark, model, paths)
        if isinstance(threshold, comparison_rows.ThresholdBefore):
            return threshold
        reasons.append(threshold)
    return comparison_rows.ThresholdBefore(float(DETECTOR.default["k"]), reason="; ".join(reasons))


def _read_threshold_on(
    benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths
) -> comparison_rows.ThresholdBefore | str:
    """Return the Min-K% threshold at ``ALPHA`` that an audit of the model chose on a benchmark.

    The first rule of ``RULES`` with a threshold is used. If there is no threshold, return the reason.
    """
    pair = tables.Pair(benchmark.name, model.entry.name)
    command = f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
    if not has_entries(paths, tables.DECISIONS, pair):
        return f"{pair.model} has no thresholds on {pair.benchmark}. Compute them: {command}"
    entry = read_latest_run(paths, tables.DECISIONS.name, pair.partition)
    is_current_build = entry.benchmark_digest == benchmark.digest
    if not is_current_build or entry.model_fingerprint != model.identity.model_fingerprint:
        return (
            f"the thresholds of {pair.model} on {pair.benchmark} come from other weights or an earlier build of the "
            f"benchmark. Compute them again: {command}"
        )
    label = f"the thresholds of {pair.model} on {pair.benchmark}"
    rows_by_rule = {}
    for row in store.read(paths, tables.DECISIONS, pair, run_id=entry.run_id, label=label).to_pylist():
        if row["detector"] == DETECTOR.name and row["alpha"] == ALPHA:
            rows_by_rule[row["rule"]] = row
    for rule in RULES:
        row = rows_by_rule.get(rule)
        if row is not None and row["threshold"] is not None:
            share = float(json.loads(row["parameters"])["k"])
            description = f"{row['rule']} threshold at {ALPHA:.0%} on {pair.benchmark}"
            return comparison_rows.ThresholdBefore(share, float(row["threshold"]), pair.benchmark, description)
    if not rows_by_rule:
        return f"{pair.benchmark}: min_k was not scored"
    return f"{pair.benchmark}: {rows_by_rule[RULES[0]]['reason']}"


Row = Mapping[str, Any]

NO_WINDOW = "no document is as long as a window"
_WINDOW_SETTINGS = ("prefix_tokens", "suffix_tokens", "stride")
_REFERENCE = "reference_model/"


def read_document_values(
    models: Mapping[tables.ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> comparison_rows.ComparedValues:
    """Return the documents of both sides that have a window in every model's extraction.

    Args:
        models: The models by their role.
        benchmarks: One or two benchmarks. The audited documents of one benchmark are compared with its held-out
            documents. Of two benchmarks, all documents of the first are to be forgotten, and those of the second are
            held out.
        paths: The data folder.

    Returns:
        The values of the documents. If extraction was not run, or was run with different settings, there are no
        documents, and ``reason`` is set.
    """
    rows: list[tuple[bool, Mapping[tables.ComparedModel, Row]]] = []
    references: set[tuple[tuple[str, str], ...]] = set()
    for benchmark in benchmarks:
        rows_by_model: dict[tables.ComparedModel, list[Row]] = {}
        templates: set[tuple[str, ...]] = set()
        for role, model in models.items():
            entry = _find_comparable_extraction(model, benchmark, models.values(), paths)
            if isinstance(entry, str):
                return _build_empty_document_values(entry)
            # The reference model of an extraction decides which passages are set apart. Therefore all extractions need
            # the same reference model, with the same weights.
            references.add(tuple(sorted(item for item in entry.upstream.items() if item[0].startswith(_REFERENCE))))
            if len(references) > 1:
                return _build_empty_document_values(
                    "the extractions used different reference models, or only some of them used a reference model"
                )
            templates.add(tuple(value for name, value in entry.upstream.items() if name.startswith(f"{TEMPLATE}/")))
            if len(templates) > 1:
                return _build_empty_document_values(
                    "the models have different chat templates, so the extractions searched different texts"
                )
            rows_by_model[role] = _read_extraction(entry, paths)
        documents = _join_rows_by_document(rows_by_model)
        if documents is None:
            return _build_empty_document_values(
                f"the extractions of {benchmark.name} used different windows for the models"
            )
        for document in documents:
            is_forget = benchmark is benchmarks[0]
            if len(benchmarks) == 1:
                is_forget = document["after"]["side"] == "audited"
            rows.append((is_forget, document))
    if not rows:
        return _build_empty_document_values(NO_WINDOW)
    values = {}
    for role in models:
        values[role] = _build_document_columns([document[role] for _, document in rows])
    is_forget_column = np.array([is_forget for is_forget, _ in rows])
    groups = [document["after"]["group"] for _, document in rows]
    return comparison_rows.ComparedValues(is_forget_column, groups, values)


def _build_document_columns(rows: Sequence[Row]) -> comparison_rows.Values:
    """Return the measures of documents as float arrays of shape (n_documents,), by name."""
    values = [(row["covered_at_0_001"], row["log_p"], row["claim"] == "reproduced") for row in rows]
    return dict(zip(comparison_rows.DOCUMENT_MEASURES, np.array(values, dtype=np.float64).T, strict=True))


def read_reproduced_documents(
    models: Mapping[tables.ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> comparison_rows.ReproducedDocuments:
    """Return the documents to be forgotten, and which of them only the model after unlearning reproduces.

    Documents that the retrained model reproduces, too, do not count as reproduced.

    Only the extraction of the model after is required. A passage counts even if the model before was not searched.
    """
    forget = benchmarks[0]
    rows_by_model: dict[tables.ComparedModel, list[Row]] = {}
    for role in ("after", "retrained"):
        if role not in models:
            continue
        entry = _find_comparable_extraction(models[role], forget, (), paths)
        if isinstance(entry, Entry):
            rows_by_model[role] = _read_extraction(entry, paths)
        elif role == "after":
            return comparison_rows.ReproducedDocuments([], [], np.empty(0, dtype=np.bool_), entry)
    rows = [row for row in rows_by_model["after"] if row["windows"]]
    if len(benchmarks) == 1:
        rows = [row for row in rows if row["side"] == "audited"]
    retrained_rows = rows_by_model.get("retrained", [])
    by_retrained = {row["document_id"] for row in retrained_rows if row["claim"] == "reproduced"}
    is_reproduced = [row["claim"] == "reproduced" and row["document_id"] not in by_retrained for row in rows]
    reason = None
    if not rows:
        reason = NO_WINDOW
    names = [row["title"] or row["document_id"] for row in rows]
    return comparison_rows.ReproducedDocuments(
        names=names,
        groups=[row["group"] for row in rows],
        reproduced=np.array(is_reproduced, dtype=bool),
        reason=reason,
    )


def _find_comparable_extraction(
    model: TokenizedModel, benchmark: BuiltBenchmark, models: Collection[TokenizedModel], paths: DataPaths
) -> Entry | str:
    """Find the latest extraction of a benchmark with a model.

    Returns:
        The ledger entry, or the reason why it cannot be compared with the extractions of ``models``.
    """
    pair = tables.Pair(benchmark.name, model.entry.name)
    if not has_entries(paths, tables.DOCUMENT_MEMORISATION, pair):
        return (
            f"{pair.model} was not searched for passages of {pair.benchmark}. Search for them: corpus-audit extract "
            f"--model {pair.model} --benchmark {pair.benchmark}"
        )
    entry = read_latest_run(paths, tables.DOCUMENT_MEMORISATION.name, pair.partition)
    difference = None
    if any(map(_has_likeliest_tokens, models)) and not _has_likeliest_tokens(model):
        difference = "on a server that does not return the likeliest tokens, which are known for another model"
    elif entry.model_fingerprint not in (None, model.identity.model_fingerprint):
        difference = "with other weights"
    elif entry.benchmark_digest not in (None, benchmark.digest):
        difference = "on another build of the benchmark"
    if difference is not None:
        return f"extraction of {pair.model} on {pair.benchmark} was run {difference}"
    return entry


def _has_likeliest_tokens(model: TokenizedModel) -> bool:
    return all(map(model.has_statistic, LIKELIEST))


def _read_extraction(run: Entry, paths: DataPaths) -> list[Row]:
    """Return the rows of DOCUMENT_MEMORISATION that a run has written."""
    label = f"the extraction of {run.partition.replace('|', ' with ')}"
    table = store.read(paths, tables.DOCUMENT_MEMORISATION, run.partition, run_id=run.run_id, label=label)
    rows: list[Row] = table.to_pylist()
    return rows


def _join_rows_by_document(
    rows_by_model: Mapping[tables.ComparedModel, list[Row]],
) -> list[Mapping[tables.ComparedModel, Row]] | None:
    """Join the rows of each document that has a window under every model.

    Returns:
        The rows by model, in the order of the document ids. None if the models' window settings differ.
    """
    rows_by_document: dict[tables.ComparedModel, dict[str, Row]] = {}
    window_settings = set()
    for role, rows in rows_by_model.items():
        rows_by_document[role] = {row["document_id"]: row for row in rows if row["windows"]}
        for row in rows_by_document[role].values():
            window_settings.add(tuple(row[name] for name in _WINDOW_SETTINGS))
    if len(window_settings) > 1:
        return None
    joined: list[Mapping[tables.ComparedModel, Row]] = []
    for document_id in sorted(set.intersection(*map(set, rows_by_document.values()))):
        joined.append({role: rows[document_id] for role, rows in rows_by_document.items()})
    return joined


def _build_empty_document_values(reason: str) -> comparison_rows.ComparedValues:
    return comparison_rows.ComparedValues(np.empty(0, dtype=np.bool_), [], {}, reason)
