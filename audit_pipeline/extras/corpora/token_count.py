"""Counting a corpus: how often each token of one tokenizer occurs in it, from beginning to end or from a checkpoint.

A table belongs to one tokenizer: the counts of another are silently wrong, so the tokenizer's fingerprint is part of
the table's metadata.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.corpus_stream import Corpus, State, corpus_from_files
from audit_pipeline.extras.corpora.token_counters import CheckedCounter, Counts, compute_table_size
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.text_rows import Skipped, SkippedRows, build_unusable_file_error
from audit_pipeline.store.files import cast_to_columns, read_parquet, write_table
from audit_pipeline.store.integrity import add_json_digest, verify_json_digest
from audit_pipeline.tables import TOKEN_FREQUENCIES, digest

CODE_VERSION = 2
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class CountLimits:
    """How much of a corpus is counted; None: all. ``max_bytes`` is UTF-8 text; the document that passes it counts."""

    max_documents: int | None = None
    max_bytes: int | None = None
    max_tokens_per_document: int | None = None


@dataclass(frozen=True)
class CorpusCount:
    """Occurrences of every token id (int64 [V], special tokens 0) in ``documents`` documents of ``bytes`` UTF-8 bytes.

    ``skipped`` are the rows that could not be used. ``seconds`` is how long all runs together counted; ``way`` says how
    (token_counters.py).
    """

    counts: Counts
    documents: int = 0
    bytes: int = 0
    skipped: SkippedRows = field(default_factory=SkippedRows)
    corpus_digest: str = ""
    limits: CountLimits = field(default_factory=CountLimits)
    seconds: float = 0.0
    way: str = "every text"

    @property
    def tokens(self) -> int:
        """N: all occurrences together."""
        return int(self.counts.sum())

    @property
    def progress_text(self) -> str:
        """How far the count is, and its speed."""
        megabytes = self.bytes / 1e6
        speed = megabytes / self.seconds if self.seconds else 0.0
        return f"{self.documents:,} documents, {megabytes:,.0f} MB, {self.tokens:,} tokens, {speed:.1f} MB/s"


Progress = Callable[[CorpusCount], None]


def count_corpus(
    model: TokenizedModel,
    corpus: Path,
    text_column: str | None = None,
    *,
    limits: CountLimits | None = None,
    checkpoint: Path | None = None,
    on_progress: Progress | None = None,
) -> CorpusCount:
    """Count the file at ``corpus``, or every readable file in that folder, one row in memory at a time.

    Raises DataError if there is no such file, none of a readable kind in the folder, or no row that can be used.
    """
    documents = corpus_from_files(corpus, text_column)
    return count_documents(
        model, documents, f"{corpus}", limits or CountLimits(), checkpoint=checkpoint, on_progress=on_progress
    )


def count_to_file(
    model: TokenizedModel,
    corpus: Path,
    out: Path,
    text_column: str | None = None,
    *,
    limits: CountLimits | None = None,
    on_progress: Progress | None = None,
) -> CorpusCount:
    """Count as :func:`count_corpus` does and write the table to ``out``; a count that was killed goes on.

    The checkpoint is in the folder of ``out`` until the table is written.
    """
    checkpoint = locate_checkpoint(out)
    count = count_corpus(model, corpus, text_column, limits=limits, checkpoint=checkpoint, on_progress=on_progress)
    write_table(out, build_frequency_table(count, model, corpus=corpus.name))
    checkpoint.unlink(missing_ok=True)
    return count


def locate_checkpoint(table: Path) -> Path:
    """Where the count that will be written to ``table`` keeps its checkpoint."""
    return table.with_name(f".{table.name}.partial")


def count_documents(
    model: TokenizedModel,
    corpus: Corpus,
    corpus_label: str,
    limits: CountLimits,
    *,
    checkpoint: Path | None = None,
    on_progress: Progress | None = None,
) -> CorpusCount:
    """Count a corpus, from the checkpoint if there is one of the same corpus, limits and tokenizer.

    About every 30 seconds the counts so far and the place in the corpus go into ``checkpoint``, whole or not at all.
    Raises DataError, naming ``corpus_label``, if no document can be used.
    """
    key = digest(
        corpus.digest, limits.__dict__, model.identity.tokenizer_fingerprint, compute_table_size(model), CODE_VERSION
    )
    done, state = _read_checkpoint(checkpoint, key, model)
    documents, size, skipped = done.documents, done.bytes, done.skipped
    counter = CheckedCounter(model, limits.max_tokens_per_document)
    began, written_at = time.monotonic() - done.seconds, time.monotonic()

    def build_count() -> CorpusCount:
        counter.count_held_texts()
        counts = done.counts + counter.counts
        counts[sorted(model.tokenizer.special_ids)] = 0
        seconds, way = time.monotonic() - began, counter.way or "every text"
        return CorpusCount(counts, documents, size, skipped, corpus.digest, limits, seconds, way)

    stream = corpus.open(state)
    rows = iter(stream)
    most_documents, most_bytes = limits.max_documents or math.inf, limits.max_bytes or math.inf
    while documents < most_documents and size < most_bytes and (item := next(rows, None)) is not None:
        if isinstance(item, Skipped):
            skipped.add(item)
        else:
            counter.add(item.text)
            documents += 1
            size += len(item.text.encode())
        if time.monotonic() - written_at >= CHECKPOINT_SECONDS:
            count = build_count()
            if checkpoint is not None:
                _write_checkpoint(checkpoint, count, key, stream.state())
            if on_progress is not None:
                on_progress(count)
            written_at = time.monotonic()
    if not documents:
        raise (
            build_unusable_file_error(corpus_label, skipped)
            if skipped.count
            else DataError(f"{corpus_label}: holds no rows")
        )
    count = build_count()
    if on_progress is not None:
        on_progress(count)
    return count


def build_frequency_table(
    count: CorpusCount,
    model: TokenizedModel,
    *,
    corpus: str = "",
    settings_digest: str = "",
    data_version: str = "",
    run_id: str = "",
) -> pa.Table:
    """The table: every token of the vocabulary with its count, and what a reader must know in the file's metadata.

    Metadata, all strings: corpus, corpus_digest, settings_digest, tokens (N), documents, bytes, skipped_rows,
    max_documents, max_bytes and max_tokens_per_document (empty: no limit), vocab_size, tokenizer_fingerprint,
    data_version, run_id, counts_sha256 (:func:`compute_counts_sha256`).
    """
    metadata = {
        "corpus": corpus,
        "corpus_digest": count.corpus_digest,
        "settings_digest": settings_digest,
        "tokens": str(count.tokens),
        "documents": str(count.documents),
        "bytes": str(count.bytes),
        "skipped_rows": str(count.skipped.count),
        **{name: "" if limit is None else str(limit) for name, limit in asdict(count.limits).items()},
        "vocab_size": str(model.vocab_size),
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
        "data_version": data_version,
        "run_id": run_id,
        "counts_sha256": compute_counts_sha256(count.counts),
    }
    ids = np.arange(len(count.counts), dtype=np.int32)
    tokens = pa.array([model.tokenizer.find_token(number) for number in ids.tolist()], pa.string())
    table = cast_to_columns(pa.table({"token_id": ids, "token": tokens, "count": count.counts}), TOKEN_FREQUENCIES)
    return table.replace_schema_metadata(metadata)


def compute_counts_sha256(counts: Counts) -> str:
    """sha256 (hex) of the counts (int64 [V], little endian), for a table that no lineage row names."""
    return hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()


def _write_checkpoint(path: Path, count: CorpusCount, key: str, state: State) -> None:
    """Write a checkpoint: counts so far and the place in the corpus, in one file."""
    record = {
        "key": key,
        "state": state,
        "documents": count.documents,
        "bytes": count.bytes,
        "skipped_rows": count.skipped.count,
        "skipped": [[row.location, row.index, row.reason] for row in count.skipped.first],
        "seconds": count.seconds,
    }
    metadata = {"checkpoint": json.dumps(add_json_digest(record))}
    write_table(path, pa.table({"count": count.counts}).replace_schema_metadata(metadata))


def _read_checkpoint(path: Path | None, key: str, model: TokenizedModel) -> tuple[CorpusCount, State | None]:
    """The count so far and the place where it goes on; an empty count if no checkpoint of this very count exists."""
    fresh = CorpusCount(np.zeros(compute_table_size(model), dtype=np.int64))
    if path is None or not path.exists():
        return fresh, None
    try:
        # Not read_table: its cast leaves the file's metadata out.
        table = read_parquet(path)
        record = verify_json_digest(json.loads((table.schema.metadata or {})[b"checkpoint"]), path)
        counts = table.column("count").to_numpy()
        if record["key"] != key:
            return fresh, None
        skipped = SkippedRows(int(record["skipped_rows"]), [Skipped(*row) for row in record["skipped"]])
        sizes = int(record["documents"]), int(record["bytes"])
        count = CorpusCount(counts, *sizes, skipped, seconds=float(record["seconds"]))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, DataError):
        # A checkpoint only saves time: a count without a readable one begins anew.
        return fresh, None
    else:
        return count, record["state"]
