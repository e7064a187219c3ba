"""Token counts of a corpus for one tokenizer, from the start or from a checkpoint.

The counts are wrong for any other tokenizer, and the numbers would not show it. Therefore the metadata of a table
contain the fingerprint of its tokenizer.
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
    """Limits of a count. None means no limit.

    Attributes:
        max_bytes: Maximum bytes of UTF-8 text. The document that exceeds it still counts.
    """

    max_documents: int | None = None
    max_bytes: int | None = None
    max_tokens_per_document: int | None = None


@dataclass(frozen=True)
class CorpusCount:
    """The token counts of a corpus.

    Attributes:
        counts: Count of each token id, int64 array of shape (vocabulary,). Special tokens have count 0.
        documents: Number of counted documents.
        bytes: UTF-8 bytes of the counted documents.
        skipped: Rows that could not be used.
        seconds: Duration of all runs together.
        way: The way of counting: "every text" or "distinct pieces" (token_counters.py).
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
        """Return the total of the counts."""
        return int(self.counts.sum())

    @property
    def progress_text(self) -> str:
        """Describe the size of the count and its speed."""
        megabytes = self.bytes / 1e6
        speed = 0.0
        if self.seconds:
            speed = megabytes / self.seconds
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
    """Count the tokens of a file, or of all readable files in a folder. One row is in memory at a time.

    Raises:
        DataError: If the path is missing, or contains no readable file or no usable row.
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
    """Count like :func:`count_corpus` and write the table to ``out``.

    A killed count resumes from its checkpoint, which is in the folder of ``out`` until the table is written.
    """
    checkpoint = locate_checkpoint(out)
    count = count_corpus(model, corpus, text_column, limits=limits, checkpoint=checkpoint, on_progress=on_progress)
    write_table(out, build_frequency_table(count, model, corpus=corpus.name))
    checkpoint.unlink(missing_ok=True)
    return count


def locate_checkpoint(table: Path) -> Path:
    """Return the path of the checkpoint for a count that is written to ``table``."""
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
    """Count the tokens of a corpus. The count resumes from a checkpoint of the same corpus, limits and tokenizer.

    About every 30 seconds the counts and the position in the corpus are written atomically to ``checkpoint``.

    Raises:
        DataError: If no document can be used. The message names ``corpus_label``.
    """
    key = digest(
        corpus.digest, limits.__dict__, model.identity.tokenizer_fingerprint, compute_table_size(model), CODE_VERSION
    )
    done, state = _read_checkpoint(checkpoint, key, model)
    documents = done.documents
    size = done.bytes
    skipped = done.skipped
    counter = CheckedCounter(model, limits.max_tokens_per_document)
    written_at = time.monotonic()
    began = written_at - done.seconds

    def build_count() -> CorpusCount:
        counter.count_held_texts()
        counts = done.counts + counter.counts
        counts[sorted(model.tokenizer.special_ids)] = 0
        seconds = time.monotonic() - began
        way = counter.way or "every text"
        return CorpusCount(counts, documents, size, skipped, corpus.digest, limits, seconds, way)

    stream = corpus.open(state)
    rows = iter(stream)
    max_documents = limits.max_documents or math.inf
    max_bytes = limits.max_bytes or math.inf
    while documents < max_documents and size < max_bytes and (item := next(rows, None)) is not None:
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
    if not documents and skipped.count:
        raise build_unusable_file_error(corpus_label, skipped)
    if not documents:
        raise DataError(f"{corpus_label} contains no rows, so no token can be counted")
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
    """Build the table of all tokens with their counts.

    The metadata of the table describe the count as strings. An empty limit means no limit.
    """
    metadata = {
        "corpus": corpus,
        "corpus_digest": count.corpus_digest,
        "settings_digest": settings_digest,
        "tokens": str(count.tokens),
        "documents": str(count.documents),
        "bytes": str(count.bytes),
        "skipped_rows": str(count.skipped.count),
    }
    for name, limit in asdict(count.limits).items():
        metadata[name] = "" if limit is None else str(limit)
    metadata |= {
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
    """Compute the hexadecimal sha256 of the counts as little-endian int64.

    The checksum protects tables that users count for themselves, because the lineage does not record these.
    """
    return hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()


def _write_checkpoint(path: Path, count: CorpusCount, key: str, state: State) -> None:
    """Write the counts and the position in the corpus into one file."""
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
    """Return the count and the position of a checkpoint.

    If it is missing, corrupt or belongs to another count, return an empty count and None.
    """
    fresh = CorpusCount(np.zeros(compute_table_size(model), dtype=np.int64))
    if path is None or not path.exists():
        return fresh, None
    try:
        # The table is not cast to a schema, because a cast would drop the metadata of the file.
        table = read_parquet(path)
        record = verify_json_digest(json.loads((table.schema.metadata or {})[b"checkpoint"]), path)
        counts = table.column("count").to_numpy()
        if record["key"] != key:
            return fresh, None
        skipped = SkippedRows(int(record["skipped_rows"]), [Skipped(*row) for row in record["skipped"]])
        count = CorpusCount(
            counts, int(record["documents"]), int(record["bytes"]), skipped, seconds=float(record["seconds"])
        )
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, DataError):
        # A checkpoint only saves time. Without a readable checkpoint the count starts again.
        return fresh, None
    else:
        return count, record["state"]
