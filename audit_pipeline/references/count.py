"""Counting tokens: how often each token of one tokenizer occurs in a reference corpus.

What belongs here: the count, its table, and what must be known of it (tokens in all, vocabulary size, tokenizer).
What does not: using frequencies in a detector (detectors/), downloading corpora.

A table belongs to one tokenizer: the counts of another are silently wrong, so the tokenizer's fingerprint is part of
the table's metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.contracts import TOKEN_FREQUENCIES
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.tables import checked, write_table
from audit_pipeline.text_rows import SUFFIXES, Skipped, read_texts

_TEXTS_A_CALL = 512


@dataclass(frozen=True)
class CorpusCount:
    """Occurrences of every token id (int64 [V]) in ``texts`` texts, and the rows that could not be read."""

    counts: npt.NDArray[np.int64]
    texts: int
    skipped: tuple[Skipped, ...]

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())


def count_tokens(model: TokenizedModel, texts: Iterable[str]) -> tuple[npt.NDArray[np.int64], int]:
    """Every occurrence of every token in ``texts``, without special tokens: (int64 [V], number of texts)."""
    # Added tokens can have ids above the model's vocabulary size.
    counts = np.zeros(max(model.vocab_size, len(model.tokenizer)), dtype=np.int64)
    read = 0
    remaining = iter(texts)
    while batch := list(islice(remaining, _TEXTS_A_CALL)):
        encoded = model.tokenizer(
            batch, add_special_tokens=False, return_attention_mask=False, truncation=False, verbose=False
        )
        for ids in encoded["input_ids"]:
            counts += np.bincount(np.asarray(ids, dtype=np.int64), minlength=len(counts))
        read += len(batch)
    counts[list(model.tokenizer.all_special_ids)] = 0
    return counts, read


def count_corpus(model: TokenizedModel, corpus: Path, text_column: str | None = None) -> CorpusCount:
    """Count the file at ``corpus``, or every readable file in that folder, one file in memory at a time.

    Raises DataError where there is no such file, and none of a readable kind in the folder.
    """
    files = _files(corpus)
    skipped: list[Skipped] = []

    def texts() -> Iterator[str]:
        for file in files:
            rows, bad = read_texts(file, text_column)
            skipped.extend(bad)
            yield from (row.text for row in rows)

    counts, read = count_tokens(model, texts())
    return CorpusCount(counts, read, tuple(skipped))


def _files(corpus: Path) -> list[Path]:
    if not corpus.exists():
        raise DataError(f"{corpus}: no such file or folder")
    if not corpus.is_dir():
        return [corpus]
    files = sorted(path for path in corpus.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not files:
        raise DataError(f"{corpus} holds no file of a kind that can be read: {', '.join(SUFFIXES)}")
    return files


def write_count(path: Path, count: CorpusCount, model: TokenizedModel) -> None:
    """Write the table: every token of the vocabulary with its count; totals and tokenizer in the file's metadata."""
    ids = np.arange(len(count.counts), dtype=np.int32)
    table = pa.table(
        {
            "token_id": ids,
            "token": pa.array(model.tokenizer.convert_ids_to_tokens(ids.tolist()), pa.string()),
            "count": count.counts,
        }
    )
    metadata = {
        "tokens": str(count.tokens),
        "texts": str(count.texts),
        "vocab_size": str(model.vocab_size),
        "tokenizer_fingerprint": model.identity.tokenizer_fingerprint,
    }
    write_table(path, checked(table, TOKEN_FREQUENCIES).replace_schema_metadata(metadata))
