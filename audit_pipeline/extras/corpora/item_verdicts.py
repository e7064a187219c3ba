"""The verdicts on the items of a test set, based on the search of a corpus and on the audit of a model.

If a benchmark has contexts, ``context`` is the question and ``text`` is the answer.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.store.ledger import has_entries, read_latest_run
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions, read
from audit_pipeline.tables import (
    CORPUS_OVERLAP,
    DOCUMENT_MEMORISATION,
    EXTRACTION_WINDOWS,
    GROUP_TESTS,
    OVERLAP_SPANS,
    PAIR_ANSWERS,
    OverlapPart,
    Pair,
)
from audit_pipeline.tables.table import Table

Record = Mapping[str, Any]
Verdict = Literal["contaminated", "suspect", "shared text", "clean", "unknown"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LEVEL = 0.05
"""Maximum q-value at which a finding on the model is a sign of contamination."""
MIN_PROBABILITY = 0.001
"""Minimum probability of a stretch of the answer that is a sign of contamination. The command extract uses the same."""


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


def judge_items(
    examples: pa.Table,
    corpus: CorpusFindings | None,
    evidence: ModelEvidence | None = None,
    correct: Mapping[str, float] | None = None,
) -> list[BenchmarkItem]:
    """Return the verdict on each item, in the order of the items.

    Of the verdict by the corpus and the verdict by the model, the one that comes first in ``VERDICTS`` counts. An item
    that was not found is *clean* only if the whole corpus was read. Without a corpus no item is clean.

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
                reason = f"{corpus.corpus} was not searched for the current text of the item: run overlap again"
            else:
                verdict, reason = _judge_by_corpus(overlap_row)
                facts |= _collect_corpus_facts(overlap_row, spans[row["example_id"]])
        if evidence is not None:
            model_verdict, model_reason, model_facts = _judge_by_model(evidence, row, border)
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


def _judge_by_corpus(row: Record) -> tuple[Verdict, str]:
    """Return the verdict on a row of corpus_overlap, and its reason."""
    scope = ""
    if not row["is_complete"]:
        scope = f" in the {row['shards_read']} of {row['shards']} shards that were read"
    if row["verdict"] == "too short to tell":
        return "unknown", f"its {row['words']} words are too few for a verdict"
    if row["verdict"] == "shared text":
        return "shared text", f"only text that many documents or items share was found{scope}"
    if row["verdict"] == "found":
        return _judge_found_item(row, scope)
    if not row["runs"]:
        return "unknown", "it was not searched for: all of its text is in many items of the test set"
    if scope:
        return "unknown", f"not found{scope}; it can be in the unread part"
    return "clean", "no unshared text of it is in the corpus"


def _judge_found_item(row: Record, scope: str) -> tuple[Verdict, str]:
    """Return the verdict on a found item, and its reason. ``scope`` describes the read part of the corpus."""
    found = f"found: {row['part']} ({row['covered'] or 0:.0%} of its words, in {row['documents']:,} document(s){scope})"
    if not row["contaminated"]:
        return "suspect", f"{found}; this is too little for the rule {row['rule']}"
    if row["part"] in ("question and answer", "text"):
        return "contaminated", found
    return "suspect", found


def _judge_by_model(evidence: ModelEvidence, row: Record, border: int) -> tuple[Verdict, str, Record]:
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
            signs.append(_judge_reproduction(evidence.model, document, "it" if is_item else "its document"))
    # The windows of a whole document have no positions in the item.
    if border and is_item:
        probability = _find_answer_probability(evidence.windows.get(name, ()), border)
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
            reason = f"its group stands out by {test['detector']} (q = {test['q_bh']:.2g}, {test['claim_level']})"
            signs.append(("suspect", reason))
    if not signs:
        return "unknown", f"{evidence.model} shows no sign of having read the item, but may have read it", facts
    verdict = min((verdict for verdict, _ in signs), key=VERDICTS.index)
    return verdict, "; ".join(reason for _, reason in signs), facts


def _judge_reproduction(model: str, document: Record, subject: str) -> tuple[Verdict, str]:
    """Return the verdict on a reproduced document, and its reason."""
    reason = f"{model} gives {document['longest_run']:,} characters of {subject} word for word"
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
    for partition, _ in iterate_partitions(paths, CORPUS_OVERLAP):
        searched_benchmark, _, name = partition.partition("|")
        if searched_benchmark == benchmark:
            corpora.append(name)
    if corpus in corpora:
        return corpus
    if corpus is not None:
        raise ConfigError(
            f"{corpus} was not searched for the texts of {benchmark} (searched were: {', '.join(corpora) or 'none'}): "
            f"corpus-audit overlap --benchmark {benchmark} --corpus {corpus}"
        )
    if len(corpora) > 1:
        raise ConfigError(f"several corpora were searched for {benchmark}: choose one of --corpus {', '.join(corpora)}")
    if corpora:
        return corpora[0]
    if required:
        raise ConfigError(
            f"no corpus was searched for the texts of {benchmark}: "
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
    overlap, spans = (read(paths, table, partition, label=label) for table in (CORPUS_OVERLAP, OVERLAP_SPANS))
    return CorpusFindings(corpus, overlap, spans)


def read_model_evidence(paths: DataPaths, pair: Pair) -> ModelEvidence:
    """Read the latest findings on a model and a benchmark.

    Raises:
        DataError: If there are no findings.
    """
    answers, tests, documents, windows = (
        _read_latest_rows(paths, table, pair)
        for table in (PAIR_ANSWERS, GROUP_TESTS, DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS)
    )
    if not (answers or documents):
        raise DataError(
            f"no findings on {pair.model} and {pair.benchmark} yet: "
            f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
        )
    answering = {(answer["run_id"], answer["detector"], answer["parameters"]) for answer in answers}
    test_of_group: dict[str, Record] = {}
    for test in tests:
        if (test["run_id"], test["detector"], test["parameters"]) in answering:
            test_of_group[test["group"]] = test
    windows_of_document = defaultdict(list)
    for window in windows:
        windows_of_document[window["document_id"]].append(window)
    return ModelEvidence(pair.model, test_of_group, {row["document_id"]: row for row in documents}, windows_of_document)


def _read_latest_rows(paths: DataPaths, table: Table, pair: Pair) -> list[dict[str, Any]]:
    """Return the rows that the latest run wrote to a table, or no rows if no run wrote to it."""
    if not has_entries(paths, table, pair):
        return []
    run_id = read_latest_run(paths, table.name, pair.partition).run_id
    label = f"{table.name} of {pair.model} on {pair.benchmark}"
    rows: list[dict[str, Any]] = read(paths, table, pair, label=label, run_id=run_id).to_pylist()
    return rows
