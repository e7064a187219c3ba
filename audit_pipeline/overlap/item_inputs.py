"""What the items of a test set are judged by, as it lies in the data folder."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from audit_pipeline.catalogue.contracts import (
    CORPUS_OVERLAP,
    DOCUMENT_MEMORISATION,
    EXTRACTION_WINDOWS,
    GROUP_TESTS,
    OVERLAP_SPANS,
    PAIR_ANSWERS,
    Pair,
)
from audit_pipeline.catalogue.ledger import has_entries, read_latest_run
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.store import iterate_partitions, read
from audit_pipeline.catalogue.table import Table
from audit_pipeline.errors import ConfigError, DataError
from audit_pipeline.overlap.items import CorpusFindings, ModelEvidence


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
    """What a corpus holds of a benchmark's texts; raises DataError where that cannot be read."""
    partition, label = f"{benchmark}|{corpus}", f"the overlap of {benchmark} with {corpus}"
    overlap, spans = (read(paths, table, partition, label=label) for table in (CORPUS_OVERLAP, OVERLAP_SPANS))
    return CorpusFindings(corpus, overlap, spans)


def read_model_evidence(paths: DataPaths, pair: Pair) -> ModelEvidence:
    """The newest findings on a model and a benchmark; raises DataError, naming the command, where there are none."""
    answers, tests, documents, windows = (
        _read_newest(paths, table, pair)
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


def _read_newest(paths: DataPaths, table: Table, pair: Pair) -> list[dict[str, Any]]:
    """The rows that a run wrote last; none where no run did."""
    if not has_entries(paths, table, pair):
        return []
    run_id = read_latest_run(paths, table.name, pair.partition).run_id
    label = f"{table.name} of {pair.model} on {pair.benchmark}"
    rows: list[dict[str, Any]] = read(paths, table, pair, label=label, run_id=run_id).to_pylist()
    return rows
