"""Counting a corpus: how often each token of one tokenizer occurs in it, from beginning to end or from a checkpoint.

A table belongs to one tokenizer: the counts of another are silently wrong, so the tokenizer's fingerprint is part of
the table's metadata.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.extras.corpora.corpus import Corpus, State, corpus_from_files
from audit_pipeline.extras.corpora.token_counters import CheckedCounter, Counts, vocabulary_size_of
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.readers.rows import Skipped, TextRow
from audit_pipeline.store.files import cast_to_columns, read_parquet, write_table
from audit_pipeline.store.integrity import add_json_digest, verify_json_digest
from audit_pipeline.tables import TOKEN_FREQUENCIES, digest

CODE_VERSION = 2
CHECKPOINT_SECONDS = 30.0
NAMED_SKIPS = 1000


@dataclass(frozen=True)
class CountLimits:
    """How much of a corpus is counted; None: all. ``max_bytes`` is UTF-8 text; the document that passes it counts."""

    max_documents: int | None = None
    max_bytes: int | None = None
    max_tokens_per_document: int | None = None


@dataclass(frozen=True)
class CorpusCount:
    """Occurrences of every token id (int64 [V], special tokens 0) in ``documents`` documents of ``bytes`` UTF-8 bytes.

    ``skipped_rows`` rows could not be used; ``skipped`` are the first 1,000 of them. ``seconds`` is how long all runs
    together counted; ``way`` says how (token_counters.py).
    """

    counts: Counts
    documents: int = 0
    bytes: int = 0
    skipped_rows: int = 0
    skipped: tuple[Skipped, ...] = ()
    corpus_digest: str = ""
    limits: CountLimits = field(default_factory=CountLimits)
    seconds: float = 0.0
    way: str = "every text"

    @property
    def tokens(self) -> int:
        """N: all occurrences together."""
        return int(self.counts.sum())

    @property
    def texts(self) -> int:
        """The number of documents."""
        return self.documents

    @property
    def megabytes_per_second(self) -> float:
        """UTF-8 text counted a second, reading included, in 10**6 bytes."""
        return self.bytes / 1e6 / self.seconds if self.seconds else 0.0

    @property
    def in_words(self) -> str:
        """How far the count is."""
        return (
            f"{self.documents:,} documents, {self.bytes / 1e6:,.0f} MB, {self.tokens:,} tokens, "
            f"{self.megabytes_per_second:.1f} MB/s"
        )


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
    limits = limits or CountLimits()
    return count_documents(
        model,
        corpus_from_files(corpus, text_column),
        f"{corpus}",
        limits,
        checkpoint=checkpoint,
        on_progress=on_progress,
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
    checkpoint = checkpoint_of(out)
    count = count_corpus(model, corpus, text_column, limits=limits, checkpoint=checkpoint, on_progress=on_progress)
    write_table(out, build_frequency_table(count, model, corpus=corpus.name))
    checkpoint.unlink(missing_ok=True)
    return count


def checkpoint_of(table: Path) -> Path:
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
        corpus.digest, limits.__dict__, model.identity.tokenizer_fingerprint, vocabulary_size_of(model), CODE_VERSION
    )
    done, state = _read_checkpoint(checkpoint, key, model)
    running = _RunningCount(replace(done, corpus_digest=corpus.digest, limits=limits), model)
    written_at = time.monotonic()
    stream = corpus.open(state)
    rows = iter(stream)
    while not running.is_limit_reached and (item := next(rows, None)) is not None:
        running.add(item)
        if time.monotonic() - written_at >= CHECKPOINT_SECONDS:
            count = running.snapshot()
            if checkpoint is not None:
                _write_checkpoint(checkpoint, count, key, stream.state())
            if on_progress is not None:
                on_progress(count)
            written_at = time.monotonic()
    count = running.snapshot()
    if not count.documents:
        raise DataError(_describe_no_rows(corpus_label, count.skipped_rows, count.skipped))
    if on_progress is not None:
        on_progress(count)
    return count


class _RunningCount:
    """A count to which documents are added, from what an earlier run has ``done``."""

    def __init__(self, previous_count: CorpusCount, model: TokenizedModel) -> None:
        self._done, self._model = previous_count, model
        self._counter = CheckedCounter(model, previous_count.limits.max_tokens_per_document)
        self._began = time.monotonic() - previous_count.seconds
        self._documents, self._bytes = previous_count.documents, previous_count.bytes
        self._skipped_rows, self._skipped = previous_count.skipped_rows, list(previous_count.skipped)

    @property
    def is_limit_reached(self) -> bool:
        limits = self._done.limits
        return (limits.max_documents is not None and self._documents >= limits.max_documents) or (
            limits.max_bytes is not None and self._bytes >= limits.max_bytes
        )

    def add(self, item: TextRow | Skipped) -> None:
        if isinstance(item, Skipped):
            self._skipped_rows += 1
            if len(self._skipped) < NAMED_SKIPS:
                self._skipped.append(item)
        else:
            self._counter.add(item.text)
            self._documents += 1
            self._bytes += len(item.text.encode())

    def snapshot(self) -> CorpusCount:
        """The count so far, special tokens 0."""
        self._counter.count_held_texts()
        counts = self._done.counts + self._counter.counts
        counts[sorted(self._model.tokenizer.special_ids)] = 0
        return replace(
            self._done,
            counts=counts,
            documents=self._documents,
            bytes=self._bytes,
            skipped_rows=self._skipped_rows,
            skipped=tuple(self._skipped),
            seconds=time.monotonic() - self._began,
            way=self._counter.way or "every text",
        )


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
    data_version, run_id, counts_sha256 (:func:`counts_sha256`).
    """
    metadata = {
        "corpus": corpus,
        "corpus_digest": count.corpus_digest,
        "settings_digest": settings_digest,
        "tokens": str(count.tokens),
        "documents": str(count.documents),
        "bytes": str(count.bytes),
        "skipped_rows": str(count.skipped_rows),
        **{name: "" if limit is None else str(limit) for name, limit in asdict(count.limits).items()},
        "vocab_size": str(model.vocab_size),
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
        "data_version": data_version,
        "run_id": run_id,
        "counts_sha256": counts_sha256(count.counts),
    }
    return _build_counts_table(count, model).replace_schema_metadata(metadata)


def counts_sha256(counts: Counts) -> str:
    """sha256 (hex) of the counts (int64 [V], little endian), for a table that no lineage row names."""
    return hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()


def _build_counts_table(count: CorpusCount, model: TokenizedModel) -> pa.Table:
    ids = np.arange(len(count.counts), dtype=np.int32)
    tokens = pa.array([model.tokenizer.find_token(number) for number in ids.tolist()], pa.string())
    return cast_to_columns(pa.table({"token_id": ids, "token": tokens, "count": count.counts}), TOKEN_FREQUENCIES)


def _write_checkpoint(path: Path, count: CorpusCount, key: str, state: State) -> None:
    """Write a checkpoint: counts so far and the place in the corpus, in one file."""
    record = {
        "key": key,
        "state": state,
        "documents": count.documents,
        "bytes": count.bytes,
        "skipped_rows": count.skipped_rows,
        "skipped": [[row.location, row.index, row.reason] for row in count.skipped],
        "seconds": count.seconds,
        "counts_sha256": counts_sha256(count.counts),
    }
    metadata = {"checkpoint": json.dumps(add_json_digest(record))}
    write_table(path, pa.table({"count": count.counts}).replace_schema_metadata(metadata))


def _read_checkpoint(path: Path | None, key: str, model: TokenizedModel) -> tuple[CorpusCount, State | None]:
    """The count so far and the place where it goes on; an empty count if no checkpoint of this very count exists."""
    fresh = CorpusCount(np.zeros(vocabulary_size_of(model), dtype=np.int64))
    if path is None or not path.exists():
        return fresh, None
    try:
        # Not read_table: its cast leaves the file's metadata out.
        table = read_parquet(path)
        record = verify_json_digest(json.loads((table.schema.metadata or {})[b"checkpoint"]), path)
        counts = cast_to_columns(table, _COUNTS).column("count").to_numpy()
        if record["key"] != key or record["counts_sha256"] != counts_sha256(counts):
            return fresh, None
        skipped = tuple(Skipped(*row) for row in record["skipped"])
        sizes = (int(record["documents"]), int(record["bytes"]), int(record["skipped_rows"]))
        count = CorpusCount(counts, *sizes, skipped=skipped, seconds=float(record["seconds"]))
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, DataError):
        # A checkpoint only saves time: a count without a readable one begins anew.
        return fresh, None
    else:
        return count, record["state"]


_COUNTS = pa.schema([TOKEN_FREQUENCIES.field("count")])


def _describe_no_rows(corpus_label: str, skipped_rows: int, skipped: Sequence[Skipped]) -> str:
    if not skipped_rows:
        return f"{corpus_label}: holds no rows"
    first = skipped[0]
    if skipped_rows == 1 and first.location == Path(corpus_label).name:
        return f"{corpus_label}: {first.reason}"
    return f"{corpus_label}: none of its {skipped_rows} rows can be used; the first, {first.location}: {first.reason}"
