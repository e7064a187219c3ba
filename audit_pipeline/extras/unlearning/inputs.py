"""What a comparison is made from: its texts, what each model makes of them, and what was extracted of its documents."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark
from audit_pipeline.detectors.detector_inputs import StatisticsIndex
from audit_pipeline.detectors.min_k import MIN_K as DETECTOR
from audit_pipeline.detectors.min_k import compute_lowest_means
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.memorisation import LIKELIEST
from audit_pipeline.extras.unlearning.measures import (
    MEANS,
    MIN_40,
    MIN_K,
    OF_DOCUMENTS,
    READS_OF_FIRST_CHOICES,
    ComparedValues,
    ReproducedDocuments,
    ThresholdBefore,
    Values,
    compute_exact_memorization,
    compute_extraction_strength,
)
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.statistics.roc import Bools
from audit_pipeline.statistics.score_columns import relabel_for_comparison
from audit_pipeline.store import store
from audit_pipeline.store.ledger import has_entries, read_latest_run
from audit_pipeline.store.ledger_records import Entry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import (
    DECISIONS,
    DOCUMENT_MEMORISATION,
    EXAMPLES,
    MEMBER,
    NON_MEMBER,
    ComparedModel,
    Pair,
    build_model_inputs,
)
from audit_pipeline.token_statistics.cached_texts import read_statistics

RULES = ("marginal", "certified")
"""Whose threshold calls a text a member: the first of these that there is."""
ALPHA = 0.05
_SHARE = 0.4
_PARTS = {"document_id": "document(s)", "group": "group(s)"}
"""What texts belong to: columns of EXAMPLES, and what they are called."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The texts to be forgotten and the held-out ones, in order: ``forget`` [n] says which is which.

    ``examples`` have the columns of EXAMPLES, with the labels and splits that their benchmarks gave them.
    """

    examples: pa.Table
    forget: Bools

    @property
    def groups(self) -> list[str]:
        groups: list[str] = self.examples["group"].to_pylist()
        return groups

    def take(self, mask: Bools) -> Sides:
        """Return those of the texts that a mask chooses."""
        return Sides(self.examples.filter(pa.array(mask)), self.forget[mask])


def read_sides(forget: BuiltBenchmark, holdout: BuiltBenchmark) -> Sides:
    """Return the texts of both sides.

    Of one benchmark, its members (or audited texts, where nothing to evaluate is labelled) against its non-members, as
    its metrics compare them; of two, all texts of the one against all of the other. Raises DataError where a side is
    empty, or a text is on both, or the two benchmarks share documents or groups.
    """
    parts = [forget.examples, holdout.examples]
    if forget.name == holdout.name:
        # In their own rows: audited texts (membership unknown) that are treated as members get new labels for it.
        evaluated = relabel_for_comparison(forget.examples)
        evaluated = evaluated.filter(pc.equal(evaluated["split"], "evaluation"))
        compared = [evaluated.filter(pc.equal(evaluated["label"], label)) for label in (MEMBER, NON_MEMBER)]
        ids = forget.examples["example_id"]
        parts = [forget.examples.filter(pc.is_in(ids, value_set=side["example_id"])) for side in compared]
    for part, benchmark, words in zip(parts, (forget, holdout), ("be forgotten", "compare them with"), strict=True):
        if not len(part):
            raise DataError(f"{benchmark.name} has no texts to {words}: name others with --forget and --holdout")
    both = set(build_model_inputs(parts[0])) & set(build_model_inputs(parts[1]))
    if both:
        raise DataError(f"{len(both)} texts are both in {forget.name} and in {holdout.name}: a text has one side")
    if forget.name != holdout.name:
        # Windows of one document differ, but a model may have read them all.
        ours, theirs = (
            {name: set(benchmark.examples[name].to_pylist()) for name in _PARTS} for benchmark in (forget, holdout)
        )
        counts = {words: len(ours[name] & theirs[name]) for name, words in _PARTS.items()}
        if any(counts.values()):
            shared = " and ".join(f"{count} {words}" for words, count in counts.items() if count)
            raise DataError(f"{forget.name} and {holdout.name} share {shared}: name held-out texts of other documents")
    sides = np.repeat([True, False], [len(part) for part in parts])
    return Sides(pa.concat_tables([part.select(EXAMPLES.names) for part in parts]), sides)


def read_values(model: TokenizedModel, sides: Sides, share: float, paths: DataPaths) -> Values:
    """A model's values of each text, [n] each, NaN where no token is scored; ``share`` is that of the Min-K% score.

    Those of ``FIRST_CHOICES`` are NaN throughout where the model's interface does not give them.

    Raises DataError, naming the command, where the model has not been run on all of the texts.
    """
    texts = build_model_inputs(sides.examples)
    index = StatisticsIndex(read_statistics(model, texts, paths), model.has_statistic)
    contexts = sides.examples["context"].to_pylist()
    found = [index.find(text, len(before or "")) for text, before in zip(texts, contexts, strict=True)]
    missing = np.array([statistics is None for statistics in found])
    if missing.any():
        counts = sides.take(missing).examples["benchmark"].value_counts().to_pylist()
        name, count = counts[0]["values"], counts[0]["counts"]
        raise DataError(
            f"{model.entry.name} has not been run on {count} texts of {name}: "
            f"corpus-audit audit --model {model.entry.name} --benchmark {name}"
        )
    rows = np.full((len(found), len(MEANS) + 2), np.nan)
    for row, statistics in zip(rows, found, strict=True):
        if statistics is None or not len(statistics):
            continue
        if statistics.explain_absent_columns(READS_OF_FIRST_CHOICES) is None:
            matches = statistics.argmax_id == statistics.token_id
            row[:2] = compute_exact_memorization(matches), compute_extraction_strength(matches)
        lowest = compute_lowest_means(statistics.logprob, (_SHARE, share))
        row[2:] = statistics.logprob.mean(dtype=np.float64), *lowest
    return dict(zip((*MEANS, MIN_40, MIN_K), rows.T, strict=True))


def find_calibration_texts(sides: Sides, threshold: ThresholdBefore) -> Bools:
    """Return which of the texts chose the threshold: [n]."""
    examples = sides.examples
    calibrating = pc.and_(pc.equal(examples["split"], "calibration"), pc.equal(examples["label"], NON_MEMBER))
    chosen = pc.and_(pc.fill_null(calibrating, False), pc.equal(examples["benchmark"], threshold.benchmark or ""))
    return np.asarray(chosen.to_numpy(zero_copy_only=False))


def read_threshold(model: TokenizedModel, benchmarks: Iterable[BuiltBenchmark], paths: DataPaths) -> ThresholdBefore:
    """Return the threshold at 5% that calls a text a member under ``model``: of the first benchmark that has one."""
    reasons = []
    for benchmark in benchmarks:
        found = _read_threshold_on(benchmark, model, paths)
        if isinstance(found, ThresholdBefore):
            return found
        reasons.append(found)
    return ThresholdBefore(float(DETECTOR.default["k"]), reason="; ".join(reasons))


def _read_threshold_on(benchmark: BuiltBenchmark, model: TokenizedModel, paths: DataPaths) -> ThresholdBefore | str:
    """Return the threshold that an audit of the model chose on a benchmark, or why there is none."""
    pair = Pair(benchmark.name, model.entry.name)
    again = f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
    if not has_entries(paths, DECISIONS, pair):
        return f"{pair.model} has no thresholds on {pair.benchmark}: {again}"
    written = read_latest_run(paths, DECISIONS.name, pair.partition)
    if (written.benchmark_digest, written.model_fingerprint) != (benchmark.digest, model.identity.model_fingerprint):
        return f"the thresholds of {pair.model} on {pair.benchmark} are of an earlier build: {again}"
    what = f"the thresholds of {pair.model} on {pair.benchmark}"
    rows = store.read(paths, DECISIONS, pair, run_id=written.run_id, label=what).to_pylist()
    own = {row["rule"]: row for row in rows if row["detector"] == DETECTOR.name and row["alpha"] == ALPHA}
    for row in (own[rule] for rule in RULES if rule in own):
        if row["threshold"] is not None:
            share = float(json.loads(row["parameters"])["k"])
            words = f"{row['rule']} threshold at {ALPHA:.0%} on {pair.benchmark}"
            return ThresholdBefore(share, float(row["threshold"]), pair.benchmark, words)
    return f"{pair.benchmark}: {own[RULES[0]]['reason'] if own else 'min_k was not scored'}"


Row = Mapping[str, Any]

NO_WINDOW = "no document is as long as a window"
_HOW = ("prefix_tokens", "suffix_tokens", "stride")
_REFERENCE = "reference_model/"


def read_document_values(
    models: Mapping[ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> ComparedValues:
    """Return the documents of both sides of which every model's extraction has a window.

    Of one benchmark the audited documents against its held-out ones, of two all documents of the first against all of
    the second. Where extraction was not run, or in another way, there are none, and the reason says so.
    """
    rows: list[tuple[bool, Mapping[ComparedModel, Row]]] = []
    references: set[tuple[tuple[str, str], ...]] = set()
    for benchmark in benchmarks:
        found: dict[ComparedModel, list[Row]] = {}
        for role, model in models.items():
            written = _find_comparable_extraction(model, benchmark, models.values(), paths)
            if isinstance(written, str):
                return _build_empty_document_values(written)
            # The reference models by which passages were set apart, with their weights.
            references.add(tuple(sorted(item for item in written.upstream.items() if item[0].startswith(_REFERENCE))))
            if len(references) > 1:
                return _build_empty_document_values(
                    "extraction was not run with the same reference model, or none, each time"
                )
            found[role] = _read_extraction(written, paths)
        together = _join_rows_by_document(found)
        if together is None:
            return _build_empty_document_values(
                f"extraction of {benchmark.name} was run with other windows on one model than on another"
            )
        is_first = benchmark is benchmarks[0]
        alone = len(benchmarks) == 1
        rows += [(document["after"]["side"] == "audited" if alone else is_first, document) for document in together]
    if not rows:
        return _build_empty_document_values(NO_WINDOW)
    sides = np.array([is_forget for is_forget, _ in rows])
    groups = [document["after"]["group"] for _, document in rows]
    values = {}
    for role in models:
        own = [document[role] for _, document in rows]
        found_values = [(row["covered_at_0_001"], row["log_p"], row["claim"] == "reproduced") for row in own]
        values[role] = dict(zip(OF_DOCUMENTS, np.array(found_values, dtype=np.float64).T, strict=True))
    return ComparedValues(sides, groups, values)


def read_reproduced(
    models: Mapping[ComparedModel, TokenizedModel],
    benchmarks: Sequence[BuiltBenchmark],
    paths: DataPaths,
) -> ReproducedDocuments:
    """Return the documents to be forgotten of which the model after, and not the retrained model, reproduces a passage.

    Only the extraction of the model after is needed: a reproduced passage counts, whatever was run before.
    """
    forget, alone = benchmarks[0], len(benchmarks) == 1
    found: dict[ComparedModel, list[Row]] = {}
    for role in ("after", "retrained"):
        if role in models:
            written = _find_comparable_extraction(models[role], forget, (), paths)
            if isinstance(written, Entry):
                found[role] = _read_extraction(written, paths)
            elif role == "after":
                return ReproducedDocuments([], [], np.empty(0, dtype=np.bool_), written)
    rows = [row for row in found["after"] if row["windows"] and (row["side"] == "audited" or not alone)]
    by_retrained = {row["document_id"] for row in found.get("retrained", ()) if row["claim"] == "reproduced"}
    return ReproducedDocuments(
        [row["title"] or row["document_id"] for row in rows],
        [row["group"] for row in rows],
        np.array([row["claim"] == "reproduced" and row["document_id"] not in by_retrained for row in rows], dtype=bool),
        None if rows else NO_WINDOW,
    )


def _find_comparable_extraction(
    model: TokenizedModel, benchmark: BuiltBenchmark, models: Collection[TokenizedModel], paths: DataPaths
) -> Entry | str:
    """The latest extraction of a benchmark with a model, or why it cannot be compared with that of ``models``."""
    pair = Pair(benchmark.name, model.entry.name)
    if not has_entries(paths, DOCUMENT_MEMORISATION, pair):
        return f"extraction was not run: corpus-audit extract --model {pair.model} --benchmark {pair.benchmark}"
    written = read_latest_run(paths, DOCUMENT_MEMORISATION.name, pair.partition)
    gives_likeliest, *others = (all(map(other.has_statistic, LIKELIEST)) for other in (model, *models))
    otherwise = None
    if any(others) and not gives_likeliest:
        otherwise = "through an interface that does not give the likeliest tokens, and with another model it was not"
    elif written.model_fingerprint not in (None, model.identity.model_fingerprint):
        otherwise = "with other weights"
    elif written.benchmark_digest not in (None, benchmark.digest):
        otherwise = "on another build of it"
    return written if otherwise is None else f"extraction of {pair.model} on {pair.benchmark} was run {otherwise}"


def _read_extraction(run: Entry, paths: DataPaths) -> list[Row]:
    """Return the rows of DOCUMENT_MEMORISATION that a run has written."""
    what = f"what was extracted of {run.partition.replace('|', ' with ')}"
    rows: list[Row] = store.read(paths, DOCUMENT_MEMORISATION, run.partition, run_id=run.run_id, label=what).to_pylist()
    return rows


def _join_rows_by_document(
    rows_by_model: Mapping[ComparedModel, list[Row]],
) -> list[Mapping[ComparedModel, Row]] | None:
    """The rows of each document by model, of those with a window; None where the models' windows are not alike."""
    by_document = {
        role: {row["document_id"]: row for row in rows if row["windows"]} for role, rows in rows_by_model.items()
    }
    if len({tuple(row[name] for name in _HOW) for rows in by_document.values() for row in rows.values()}) > 1:
        return None
    common = sorted(set.intersection(*(set(rows) for rows in by_document.values())))
    return [{role: rows[document] for role, rows in by_document.items()} for document in common]


def _build_empty_document_values(reason: str) -> ComparedValues:
    return ComparedValues(np.empty(0, dtype=np.bool_), [], {}, reason)
