"""The verdicts on the items of a test set, and the accuracy of a model on the items with each verdict.

The verdicts are based on the search of a corpus and on the audit of a model. If a benchmark has contexts, ``context``
is the question and ``text`` is the answer.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from audit_pipeline import tables
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.extras.extraction import ANSWERS
from audit_pipeline.statistics.group_means import bound_mean_error
from audit_pipeline.statistics.intervals import NO_INTERVAL, Interval
from audit_pipeline.statistics.roc import Bools, Floats
from audit_pipeline.statistics.share_bounds import Rate, compute_difference_interval, estimate_grouped_rate
from audit_pipeline.store.ledger import has_entries, read_latest_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions, read
from audit_pipeline.tables import OverlapPart, Pair
from audit_pipeline.tables.table import Table

Record = Mapping[str, Any]
Verdict = Literal["contaminated", "suspect", "shared text", "clean", "unknown"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LEVEL = 0.05
"""Maximum q-value at which a finding on the model is a sign of contamination."""
MIN_PROBABILITY = 0.001
"""Minimum probability of a stretch of the answer that is a sign of contamination. The command extract uses the same."""
DIFFERENCE_CAVEAT = (
    "A difference does not show that contamination raised the score: items in a corpus may be easier or better known "
    "than other items."
)
_PERMUTATIONS = 1999
_BLOCK = 1 << 20
"""Approximate number of values that are permuted at a time, which bounds the memory."""


@dataclass(frozen=True, eq=False)
class CorpusFindings:
    """The rows of corpus_overlap and overlap_spans for one benchmark and one corpus."""

    corpus: str
    overlap: pa.Table
    spans: pa.Table


@dataclass(frozen=True)
class ModelEvidence:
    """The latest findings on a model and a benchmark.

    Attributes:
        tests: Rows of group_tests by group, for the detector that answers for this model and benchmark.
        documents: Rows of document_memorisation by document_id. If the benchmark consists of rows instead of documents,
            this document_id is the example_id of the item.
        windows: Rows of extraction_windows by document_id.
    """

    model: str
    tests: Mapping[str, Record]
    documents: Mapping[str, Record]
    windows: Mapping[str, Sequence[Record]]


@dataclass(frozen=True)
class BenchmarkItem:
    """An item of a test set with its verdict. ``--json`` prints its fields.

    Attributes:
        where: The part of the item that was found, as in corpus_overlap.
        covered: Share of the item's words that was found, as in corpus_overlap.
        passages: Number of passages, as in corpus_overlap.
        documents: Maximum number of documents with a passage, as in corpus_overlap.
        first_place: First position of the longest passage.
        p_value: Conformal p-value of the item's group.
        p_value_of: Detector and calibration of the p-value.
        longest_run: Length of the longest reproduced run, in characters.
        answer_probability: Probability of the answer's most probable stretch, conditional on the question.
        correct: Correctness of the model's answer from 0 to 1, or None without a result.
    """

    example_id: str
    document_id: str
    group: str
    verdict: Verdict
    reason: str
    where: OverlapPart | None = None
    covered: float | None = None
    passages: int | None = None
    documents: int | None = None
    first_place: str | None = None
    p_value: float | None = None
    p_value_of: str | None = None
    longest_run: int | None = None
    answer_probability: float | None = None
    correct: float | None = None


def classify_items(
    examples: pa.Table,
    corpus: CorpusFindings | None,
    evidence: ModelEvidence | None = None,
    correct: Mapping[str, float] | None = None,
) -> list[BenchmarkItem]:
    """Return the verdict on each item, in the order of the items.

    An item has a verdict by the corpus and a verdict by the model. The verdict that comes first in ``VERDICTS`` counts.
    An item that was not found is *clean* only if the whole corpus was read. Without a corpus no item is clean.

    Args:
        examples: The items (schema EXAMPLES).
        corpus: The findings of a corpus.
        evidence: The findings on a model.
        correct: Correctness of the model's answers by example_id.
    """
    overlap: dict[str, Record] = {}
    spans: dict[str, list[Record]] = defaultdict(list)
    if corpus is not None:
        overlap = {row["example_id"]: row for row in corpus.overlap.to_pylist()}
        for span in corpus.spans.to_pylist():
            spans[span["example_id"]].append(span)
    items = []
    for row in examples.select(["example_id", "document_id", "group", "context"]).to_pylist():
        border = len(row.pop("context") or "")
        facts: dict[str, Any] = {"correct": (correct or {}).get(row["example_id"])}
        verdict: Verdict = "unknown"
        reason = ""
        if corpus is not None:
            overlap_row = overlap.get(row["example_id"])
            if overlap_row is None:
                reason = (
                    f"{corpus.corpus} was not searched for the current text of the item: run `corpus-audit overlap` "
                    "again"
                )
            else:
                verdict, reason = _classify_by_corpus(overlap_row)
                facts |= _collect_corpus_facts(overlap_row, spans[row["example_id"]])
        if evidence is not None:
            model_verdict, model_reason, model_facts = _classify_by_model(evidence, row, border)
            facts |= model_facts
            verdict = min(verdict, model_verdict, key=VERDICTS.index)
            reason = "; ".join(filter(None, (reason, model_reason)))
        items.append(BenchmarkItem(**row, verdict=verdict, reason=reason, **facts))
    return items


def _collect_corpus_facts(overlap_row: Record, spans: Sequence[Record]) -> dict[str, Any]:
    """Return the fields of an item that come from the corpus."""
    facts = {name: overlap_row[name] for name in ("covered", "passages", "documents")}
    facts["where"] = overlap_row["part"]
    copies = [span for span in spans if not span["is_common"]] or spans
    longest = min(copies, key=lambda span: (-span["words"], span["char_start"]), default=None)
    if longest is not None and longest["found_in"]:
        name = longest["urls"][0] or f"{longest['shards'][0]}, {longest['found_in'][0]}"
        facts["first_place"] = f"{name}, character {longest['starts'][0]:,}"
    return facts


def _classify_by_corpus(row: Record) -> tuple[Verdict, str]:
    """Return the verdict on a row of corpus_overlap, and its reason."""
    scope = ""
    if not row["is_complete"]:
        scope = f" in the {row['shards_read']} of {row['shards']} shards that were read"
    if row["verdict"] == "too short to tell":
        return "unknown", f"the item has only {row['words']} words, too few for a verdict"
    if row["verdict"] == "shared text":
        return "shared text", f"only text that many documents or items share was found{scope}"
    if row["verdict"] == "found":
        return _classify_found_item(row, scope)
    if not row["runs"]:
        return "unknown", "the item was not searched for, because all of its text is in many items of the test set"
    if scope:
        return "unknown", f"not found{scope}; the unread part may contain it"
    return "clean", "the corpus contains no text of the item, except shared text"


def _classify_found_item(row: Record, scope: str) -> tuple[Verdict, str]:
    """Return the verdict on a found item, and its reason. ``scope`` describes the read part of the corpus."""
    found = f"found: {row['part']} ({row['covered'] or 0:.0%} of its words, in {row['documents']:,} document(s){scope})"
    if not row["contaminated"]:
        return "suspect", f"{found}; this is too little for the rule {row['rule']}"
    if row["part"] in ("question and answer", "text"):
        return "contaminated", found
    return "suspect", found


def _classify_by_model(evidence: ModelEvidence, row: Record, border: int) -> tuple[Verdict, str, Record]:
    """Return the verdict on an item by the findings on the model, the reasons, and fields of the item.

    ``border`` is the length of the question in characters, or 0 if the item has no question.
    """
    # The findings are on the item itself, or on the document that contains it.
    name = row["document_id"]
    if row["example_id"] in evidence.documents:
        name = row["example_id"]
    is_item = name == row["example_id"]
    facts: dict[str, Any] = {}
    signs: list[tuple[Verdict, str]] = []
    document = evidence.documents.get(name)
    if document is not None:
        facts["longest_run"] = document["longest_run"]
        if document["claim"] == "reproduced":
            signs.append(
                _classify_reproduction(evidence.model, document, "the item" if is_item else "the item's document")
            )
    # The windows of a whole document have no positions in the item.
    if border and is_item:
        first_character = border
        if document is not None and document["stride"] == ANSWERS:
            # The window of an answer has positions in the text of the chat template, and its suffix is in the answer.
            first_character = 0
        probability = _find_answer_probability(evidence.windows.get(name, ()), first_character)
        if probability is not None:
            facts["answer_probability"] = probability
            if probability >= MIN_PROBABILITY:
                reason = f"a stretch of the answer has probability {probability:.2g} given the question"
                signs.append(("suspect", reason))
    test = evidence.tests.get(row["group"])
    if test is not None:
        facts["p_value"] = test["p_value"]
        facts["p_value_of"] = f"{test['detector']} of its group, against {test['n_calibration_groups']} held-out groups"
        if test["q_bh"] <= LEVEL and test["direction"] != "opposite":
            strength = f"q = {test['q_bh']:.2g}, {test['claim_level']}"
            reason = f"the group of the item stands out by {test['detector']} ({strength})"
            signs.append(("suspect", reason))
    if not signs:
        return "unknown", f"{evidence.model} shows no sign of having read the item, but may have read it", facts
    verdict = min((verdict for verdict, _ in signs), key=VERDICTS.index)
    return verdict, "; ".join(reason for _, reason in signs), facts


def _classify_reproduction(model: str, document: Record, subject: str) -> tuple[Verdict, str]:
    """Return the verdict on a reproduced document, and its reason."""
    reason = f"{model} reproduces {document['longest_run']:,} characters of {subject} word for word"
    if document["q_bh"] is not None and document["q_bh"] <= LEVEL:
        return "contaminated", f"{reason}, more than held-out texts (q = {document['q_bh']:.2g})"
    return "suspect", reason


def _find_answer_probability(windows: Sequence[Record], border: int) -> float | None:
    """Return the probability of the most probable window in the answer, or None if no window counts.

    Windows with a reason in the column ``set_apart`` do not count, because other reasons than contamination explain
    them. Windows without a probability do not count, either.
    """
    log_ps: list[float] = []
    for window in windows:
        is_in_answer = window["suffix_begin"] >= border
        if is_in_answer and window["set_apart"] is None and window["log_p_top_40"] is not None:
            log_ps.append(window["log_p_top_40"])
    if not log_ps:
        return None
    return math.exp(max(log_ps))


def choose_corpus(paths: DataPaths, benchmark: str, corpus: str | None, *, required: bool = True) -> str | None:
    """Return ``corpus``, or if it is None, the only corpus that was searched for the texts of the benchmark.

    Returns:
        The name, or None if no corpus was searched and none is named or required.

    Raises:
        ConfigError: If the corpus was not searched, or several corpora were searched and none is named.
    """
    corpora: list[str] = []
    for partition, _ in iterate_partitions(paths, tables.CORPUS_OVERLAP):
        searched_benchmark, _, name = partition.partition("|")
        if searched_benchmark == benchmark:
            corpora.append(name)
    if corpus in corpora:
        return corpus
    if corpus is not None:
        raise ConfigError(
            f"{corpus} was not searched for the texts of {benchmark} (searched corpora: "
            f"{', '.join(corpora) or 'none'}). Search the corpus: corpus-audit overlap --benchmark {benchmark} "
            f"--corpus {corpus}"
        )
    if len(corpora) > 1:
        raise ConfigError(
            f"several corpora were searched for the texts of {benchmark}. Choose a corpus with --corpus: "
            f"{', '.join(corpora)}"
        )
    if corpora:
        return corpora[0]
    if required:
        raise ConfigError(
            f"no corpus was searched for the texts of {benchmark}. Search a corpus: "
            f"corpus-audit overlap --benchmark {benchmark} --corpus C"
        )
    return None


def read_corpus_findings(paths: DataPaths, benchmark: str, corpus: str) -> CorpusFindings:
    """Read the findings of a corpus on a benchmark's texts.

    Raises:
        DataError: If the findings are unreadable.
    """
    partition = f"{benchmark}|{corpus}"
    label = f"the overlap of {benchmark} with {corpus}"
    overlap, spans = (
        read(paths, table, partition, label=label) for table in (tables.CORPUS_OVERLAP, tables.OVERLAP_SPANS)
    )
    return CorpusFindings(corpus, overlap, spans)


def read_model_evidence(paths: DataPaths, pair: Pair) -> ModelEvidence:
    """Read the latest findings on a model and a benchmark.

    Raises:
        DataError: If there are no findings.
    """
    answers, tests, documents, windows = (
        _read_latest_rows(paths, table, pair)
        for table in (tables.PAIR_ANSWERS, tables.GROUP_TESTS, tables.DOCUMENT_MEMORISATION, tables.EXTRACTION_WINDOWS)
    )
    if not (answers or documents):
        raise DataError(
            f"there are no findings of {pair.model} on {pair.benchmark} yet. Audit the model: "
            f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
        )
    answering = {(answer["run_id"], answer["detector"], answer["parameters"]) for answer in answers}
    test_of_group: dict[str, Record] = {}
    for test in tests:
        if (test["run_id"], test["detector"], test["parameters"]) in answering:
            test_of_group[test["group"]] = test
    item_by_document = {row["document_id"]: _find_item_name(row) for row in documents}
    windows_of_document = defaultdict(list)
    for window in windows:
        windows_of_document[item_by_document.get(window["document_id"], window["document_id"])].append(window)
    # The strongest answer of a conversation counts for the item.
    strongest_last = sorted(documents, key=lambda row: (row["claim"] == "reproduced", row["longest_run"]))
    document_by_item = {item_by_document[row["document_id"]]: row for row in strongest_last}
    return ModelEvidence(pair.model, test_of_group, document_by_item, windows_of_document)


def _find_item_name(document: Record) -> str:
    """Return the name of a searched document, without the number of the answer if the document is an answer."""
    name: str = document["document_id"]
    if document["stride"] == ANSWERS:
        return re.sub(r"/[0-9]+$", "", name)
    return name


def _read_latest_rows(paths: DataPaths, table: Table, pair: Pair) -> list[dict[str, Any]]:
    """Return the rows that the latest run wrote to a table, or no rows if no run wrote to it."""
    if not has_entries(paths, table, pair):
        return []
    run_id = read_latest_run(paths, table.name, pair.partition).run_id
    label = f"{table.name} of {pair.model} on {pair.benchmark}"
    rows: list[dict[str, Any]] = read(paths, table, pair, label=label, run_id=run_id).to_pylist()
    return rows


@dataclass(frozen=True)
class AccuracyComparison:
    """The accuracy on contaminated items minus the accuracy on clean items.

    Attributes:
        contaminated: Accuracy on contaminated items.
        clean: Accuracy on clean items.
        difference: Accuracy on contaminated items minus accuracy on clean items, or None if either is unknown.
        method: The methods of the interval and the p-value, or the reason why they are missing.
    """

    contaminated: Rate
    clean: Rate
    difference: float | None
    interval: Interval
    p_value: float | None
    method: str


def measure_accuracy(items: Sequence[BenchmarkItem], *verdicts: Verdict) -> Rate:
    """Compute the accuracy on the items whose verdict is one of ``verdicts``, with a 95% interval.

    The interval allows for dependent items in a group. Items without a result are ignored.
    """
    correct: list[float] = []
    groups: list[str] = []
    for item in items:
        if item.verdict in verdicts and item.correct is not None:
            correct.append(item.correct)
            groups.append(item.group)
    return estimate_grouped_rate(correct, groups)


def compare_accuracy(items: Sequence[BenchmarkItem], *, seed: int = 0) -> AccuracyComparison:
    """Compare the accuracy on contaminated and on clean items. Items without a result are ignored.

    The interval combines the intervals of the two accuracies as if they were independent. It tends to be too wide if a
    group has both contaminated and clean items. The interval and the p-value are missing if the contaminated items or
    the clean items belong to fewer than two groups.
    """
    contaminated = measure_accuracy(items, "contaminated")
    clean = measure_accuracy(items, "clean")
    difference = None
    if contaminated.value is not None and clean.value is not None:
        difference = contaminated.value - clean.value
    for rate, side in ((contaminated, "contaminated"), (clean, "clean")):
        if rate.n_groups < 2:
            reason = (
                f"no comparison: {rate.n} {side} item(s) have a result, in {rate.n_groups} group(s); "
                "at least two groups are required"
            )
            return AccuracyComparison(contaminated, clean, difference, NO_INTERVAL, None, reason)
    chosen = [item for item in items if item.verdict in ("contaminated", "clean") and item.correct is not None]
    chosen.sort(key=lambda item: item.example_id)
    values = np.array([item.correct for item in chosen], dtype=np.float64)
    flags = np.array([item.verdict == "contaminated" for item in chosen])
    groups = [item.group for item in chosen]
    interval = compute_difference_interval(contaminated, clean)
    p_value = compute_permutation_p_value(values, flags, groups, seed)
    method = (
        "95% interval of the difference from the intervals of both accuracies (Newcombe's method 10); two-sided "
        f"p-value of {_PERMUTATIONS} permutations by group (seed {seed})"
    )
    return AccuracyComparison(contaminated, clean, difference, interval, p_value, method)


def compute_permutation_p_value(values: Floats, flags: Bools, groups: Sequence[str], seed: int = 0) -> float:
    """Compute the two-sided permutation p-value of the difference in mean between flagged and other items.

    The flags of uniform groups (all or no items flagged) are permuted between these groups. The flags of mixed groups
    are permuted within each group. Of N permutations, k have a difference that is at least as large as the observed
    one. The p-value is (1 + k) / (1 + N).

    Args:
        values: Float array of shape (n_items,).
        flags: Bool array of shape (n_items,). At least one item is flagged and at least one is not.
        groups: Group of each item.
        seed: Seed of the permutations.
    """
    _, group_at = np.unique(np.array(groups, dtype=object), return_inverse=True)
    order = np.argsort(group_at, kind="stable")
    values = values[order]
    flags = flags[order]
    group_at = group_at[order]
    sizes = np.bincount(group_at)
    share = np.bincount(group_at, weights=flags) / sizes
    is_uniform = (share == 0) | (share == 1)
    is_in_mixed_group = ~is_uniform[group_at]
    sums = np.bincount(group_at, weights=values)[is_uniform]
    total = values.sum()
    n = len(values)
    generator = np.random.default_rng(seed)

    def subtract_means(flagged_sum: Any, count: Any) -> Floats:
        return np.asarray(flagged_sum / count - (total - flagged_sum) / (n - count))

    def permute_differences() -> Iterator[Floats]:
        block_size = max(1, _BLOCK // n)
        for start in range(0, _PERMUTATIONS, block_size):
            count = min(block_size, _PERMUTATIONS - start)
            flagged_groups = generator.permuted(np.tile(share[is_uniform], (count, 1)), axis=1)
            # The sort key is the number of the item's group plus a random number below 1. Sorting by it keeps the
            # items of a group together and shuffles them.
            random_keys = generator.random((count, int(is_in_mixed_group.sum())))
            shuffled = np.argsort(group_at[is_in_mixed_group] + random_keys, axis=1)
            flagged_sums = flagged_groups @ sums + values[is_in_mixed_group][shuffled] @ flags[is_in_mixed_group]
            yield subtract_means(flagged_sums, flagged_groups @ sizes[is_uniform] + flags[is_in_mixed_group].sum())

    observed = abs(subtract_means(values @ flags, flags.sum()))
    # Sums of the same numbers in another order can differ by rounding. Two differences of two means each are compared,
    # so the rounding error of four means is allowed.
    rounding = 4 * float(bound_mean_error(np.abs(values).max(), n))
    n_reached = 0
    for differences in permute_differences():
        n_reached += int((np.abs(differences) >= observed - rounding).sum())
    return (1 + n_reached) / (1 + _PERMUTATIONS)
