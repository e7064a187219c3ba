"""The items of a test set one by one: what of each is in a corpus, what the model shows of it, and a verdict.

Where a benchmark has contexts, ``context`` is the question and ``text`` the answer.
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
"""A q-value of at most this is a sign."""
LEAST_PROBABILITY = 0.001
"""With at least this probability the model gives a stretch of an answer, as extraction counts it."""


@dataclass(frozen=True, eq=False)
class CorpusFindings:
    """Rows of corpus_overlap and overlap_spans, of one benchmark and one corpus."""

    corpus: str
    overlap: pa.Table
    spans: pa.Table


@dataclass(frozen=True)
class ModelEvidence:
    """What the newest findings say of a model on the benchmark.

    ``tests``: rows of group_tests by group, of the detector that answers. ``documents``: rows of document_memorisation
    by document_id, which of a benchmark of rows is the example_id. ``windows``: rows of extraction_windows by the same.
    """

    model: str
    tests: Mapping[str, Record]
    documents: Mapping[str, Record]
    windows: Mapping[str, Sequence[Record]]


@dataclass(frozen=True)
class TestItem:
    """One item of a test set.

    ``where`` (the part of it that was found), ``covered``, ``passages`` and ``documents`` are those of
    corpus_overlap; ``first_place``: where its longest passage is first. ``p_value`` is conformal, of what
    ``p_value_of`` says; ``longest_run``: most characters on end that the model gives; ``answer_probability``: of the
    likeliest stretch of the answer, given the question. ``correct``: 0 to 1, None without a result.
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
) -> list[TestItem]:
    """Return a row for each of ``examples`` (schema EXAMPLES), in their order; ``correct`` is by example_id.

    The stronger verdict holds, the corpus's or the model's. An item that was not found is *clean* only where all of the
    corpus was read; without a corpus none is.
    """
    overlap = {} if corpus is None else {row["example_id"]: row for row in corpus.overlap.to_pylist()}
    spans: dict[str, list[Record]] = defaultdict(list)
    for span in [] if corpus is None else corpus.spans.to_pylist():
        spans[span["example_id"]].append(span)
    items = []
    for row in examples.select(["example_id", "document_id", "group", "context"]).to_pylist():
        border = len(row.pop("context") or "")
        facts: dict[str, Any] = {"correct": (correct or {}).get(row["example_id"])}
        verdict: Verdict = "unknown"
        reason = ""
        if corpus is not None:
            found = overlap.get(row["example_id"])
            reason = f"{corpus.corpus} was not searched for it as it is now: run overlap again"
            if found is not None:
                own = spans[row["example_id"]]
                copies = [span for span in own if not span["is_common"]] or own
                facts |= {name: found[name] for name in ("covered", "passages", "documents")}
                facts["where"] = found["part"]
                longest = min(copies, key=lambda span: (-span["words"], span["char_start"]), default=None)
                if longest is not None and longest["found_in"]:
                    name = longest["urls"][0] or f"{longest['shards'][0]}, {longest['found_in'][0]}"
                    facts["first_place"] = f"{name}, character {longest['starts'][0]:,}"
                verdict, reason = _judge_by_corpus(found)
        if evidence is not None:
            sign, words, shown = _judge_by_model(evidence, row, border)
            facts |= shown
            stronger = VERDICTS.index(sign) < VERDICTS.index(verdict)
            verdict = sign if stronger else verdict
            reason = "; ".join(filter(None, (reason, words)))
        items.append(TestItem(**row, verdict=verdict, reason=reason, **facts))
    return items


def _judge_by_corpus(found: Record) -> tuple[Verdict, str]:
    """Return the verdict on a row of corpus_overlap, and its reason."""
    read = "" if found["is_complete"] else f" in the {found['shards_read']} of {found['shards']} shards that were read"
    counted = f"{found['part']} ({found['covered'] or 0:.0%} of its words, in {found['documents']:,} document(s){read})"
    verdict: Verdict = "suspect"
    match found["verdict"]:
        case "too short to tell":
            verdict, reason = "unknown", f"its {found['words']} words are too few to tell"
        case "shared text":
            verdict, reason = "shared text", f"only text of it was found that many documents or items share{read}"
        case "not found" if not found["runs"]:
            verdict, reason = "unknown", "it was not looked for: all of it is in many items of the test set"
        case "not found" if read:
            verdict, reason = "unknown", f"not found{read}, which does not say that it is not in the others"
        case "not found":
            verdict, reason = "clean", "nothing of its own is in the corpus"
        case _ if not found["contaminated"]:
            reason = f"found: {counted}; by the rule {found['rule']} this is too little to count"
        case _:
            reason = f"found: {counted}"
            verdict = "contaminated" if found["part"] in ("question and answer", "text") else "suspect"
    return verdict, reason


def _judge_by_model(evidence: ModelEvidence, row: Record, border: int) -> tuple[Verdict, str, Record]:
    """Return what the model shows of an item: a verdict (unknown: nothing), its reasons, and the facts."""
    name = row["example_id"] if row["example_id"] in evidence.documents else row["document_id"]
    test, document = evidence.tests.get(row["group"]), evidence.documents.get(name)
    facts: dict[str, Any] = {}
    signs: list[tuple[Verdict, str]] = []
    if document is not None:
        facts["longest_run"] = document["longest_run"]
        if document["claim"] == "reproduced":
            what = "it" if name == row["example_id"] else "its document"
            words = f"{evidence.model} gives {document['longest_run']:,} characters of {what} word for word"
            if document["q_bh"] is not None and document["q_bh"] <= LEVEL:
                signs.append(("contaminated", f"{words}, more than held-out texts (q = {document['q_bh']:.2g})"))
            else:
                signs.append(("suspect", words))
    # Of a whole document, places are none of the item's.
    windows = evidence.windows.get(name, ()) if border and name == row["example_id"] else ()
    log_ps = [
        window["log_p_top_40"]
        for window in windows
        if window["suffix_begin"] >= border and window["set_apart"] is None and window["log_p_top_40"] is not None
    ]
    if log_ps:
        facts["answer_probability"] = math.exp(max(log_ps))
        if facts["answer_probability"] >= LEAST_PROBABILITY:
            words = f"a stretch of the answer has probability {facts['answer_probability']:.2g} given the question"
            signs.append(("suspect", words))
    if test is not None:
        against = f"against {test['n_calibration_groups']} held-out groups"
        facts |= {"p_value": test["p_value"], "p_value_of": f"{test['detector']} of its group, {against}"}
        if test["q_bh"] <= LEVEL and test["direction"] != "opposite":
            words = f"its group stands out by {test['detector']} (q = {test['q_bh']:.2g}, {test['claim_level']})"
            signs.append(("suspect", words))
    if not signs:
        return "unknown", f"{evidence.model} shows no sign of it, which does not say that it never read it", facts
    return min((sign for sign, _ in signs), key=VERDICTS.index), "; ".join(words for _, words in signs), facts


def choose_corpus(paths: DataPaths, benchmark: str, corpus: str | None, *, required: bool = True) -> str | None:
    """``corpus``, or the only one that was searched for the texts of ``benchmark``.

    None where none was named and none was searched, and none is ``required``. Raises ConfigError where it is not clear
    which is meant, or that one was not searched.
    """
    partitions = [name.partition("|") for name, _ in iterate_partitions(paths, CORPUS_OVERLAP)]
    corpora = [name for of, _, name in partitions if of == benchmark]
    if corpus in corpora:
        return corpus
    if corpus is None and len(corpora) < 2 and (corpora or not required):
        return corpora[0] if corpora else None
    if corpus is None and corpora:
        raise ConfigError(f"several corpora were searched for {benchmark}; say which: --corpus {', '.join(corpora)}")
    raise ConfigError(
        f"{corpus or 'no corpus'} was {'not ' if corpus else ''}searched for the texts of {benchmark} (searched were: "
        f"{', '.join(corpora) or 'none'}): corpus-audit overlap --benchmark {benchmark} --corpus {corpus or 'C'}"
    )


def read_corpus_findings(paths: DataPaths, benchmark: str, corpus: str) -> CorpusFindings:
    """Return what a corpus holds of a benchmark's texts; raises DataError where that cannot be read."""
    partition, label = f"{benchmark}|{corpus}", f"the overlap of {benchmark} with {corpus}"
    overlap, spans = (read(paths, table, partition, label=label) for table in (CORPUS_OVERLAP, OVERLAP_SPANS))
    return CorpusFindings(corpus, overlap, spans)


def read_model_evidence(paths: DataPaths, pair: Pair) -> ModelEvidence:
    """The newest findings on a model and a benchmark; raises DataError, naming the command, where there are none."""
    answers, tests, documents, windows = (
        _read_latest_rows(paths, table, pair)
        for table in (PAIR_ANSWERS, GROUP_TESTS, DOCUMENT_MEMORISATION, EXTRACTION_WINDOWS)
    )
    if not (answers or documents):
        raise DataError(
            f"nothing is known of {pair.model} on {pair.benchmark} yet: "
            f"corpus-audit audit --model {pair.model} --benchmark {pair.benchmark}"
        )
    named = {(answer["run_id"], answer["detector"], answer["parameters"]) for answer in answers}
    by_document = defaultdict(list)
    for window in windows:
        by_document[window["document_id"]].append(window)
    return ModelEvidence(
        pair.model,
        {row["group"]: row for row in tests if (row["run_id"], row["detector"], row["parameters"]) in named},
        {row["document_id"]: row for row in documents},
        by_document,
    )


def _read_latest_rows(paths: DataPaths, table: Table, pair: Pair) -> list[dict[str, Any]]:
    """Return the rows that a run wrote last; none where no run did."""
    if not has_entries(paths, table, pair):
        return []
    run_id = read_latest_run(paths, table.name, pair.partition).run_id
    label = f"{table.name} of {pair.model} on {pair.benchmark}"
    rows: list[dict[str, Any]] = read(paths, table, pair, label=label, run_id=run_id).to_pylist()
    return rows
