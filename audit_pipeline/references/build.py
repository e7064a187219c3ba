"""Bringing token-frequency tables up to date: one table for each corpus and tokenizer, with its lineage.

What belongs here: whether a table is stale, and the order of count, record and write. What does not: counting itself
(count.py), reading tables (frequencies.py), when tables are built (assets/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import TOKEN_FREQUENCIES, digest
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError
from audit_pipeline.models.load import TokenizedModel
from audit_pipeline.references.config import ReferenceEntry
from audit_pipeline.references.corpus import Corpus, files_corpus, source_corpus
from audit_pipeline.references.count import (
    CODE_VERSION,
    CorpusCount,
    CountLimits,
    Progress,
    checkpoint_of,
    count_documents,
    table_of,
)
from audit_pipeline.references.frequencies import data_version, partition_of, read_kept_frequencies
from audit_pipeline.references.hub import hub_corpus


@dataclass(frozen=True)
class FrequencyReport:
    """A table that is up to date. ``count`` is what was counted for it now; None where it was up to date before.

    ``metadata`` is what the table says of itself (count.py, table_of).
    """

    corpus: str
    tokenizer_fingerprint: str
    path: Path
    data_version: str
    metadata: Mapping[str, str]
    count: CorpusCount | None

    @property
    def tokens(self) -> int:
        """N: occurrences of all tokens but special ones."""
        return int(self.metadata["tokens"])

    @property
    def problem(self) -> str | None:
        """What is wrong with the table; None where it can be used."""
        return None if self.tokens > 0 else "the table holds no token"

    @property
    def vocabulary(self) -> int:
        """How many token ids the model's configuration counts."""
        return int(self.metadata["vocab_size"])

    @property
    def documents(self) -> int:
        return int(self.metadata["documents"])

    @property
    def skipped_rows(self) -> int:
        """Rows of the corpus that could not be used."""
        return int(self.metadata["skipped_rows"])


def corpus_of(entry: ReferenceEntry, paths: DataPaths) -> Corpus:
    """The documents of a configured corpus.

    Raises DataError (or another AuditError) where they cannot be had, saying what to do.
    """
    if entry.package is not None:
        return source_corpus(entry.package, paths)
    if entry.path is not None:
        return files_corpus(entry.path, entry.text_column)
    if entry.hub is None or entry.files is None:
        raise TypeError(f"{entry.name} has neither package nor path nor hub")
    return hub_corpus(entry.hub, entry.files, entry.revision, entry.text_column)


def build_frequencies(
    entry: ReferenceEntry,
    model: TokenizedModel,
    paths: DataPaths,
    step: LineageStep,
    *,
    on_progress: Progress | None = None,
) -> FrequencyReport:
    """Count the corpus with the model's tokenizer, unless the table there is of these documents and settings.

    A count that was killed goes on from its checkpoint. The lineage row is written before the table. Raises DataError
    (or another AuditError) where the corpus cannot be had, or holds no document that can be used.
    """
    tokenizer = model.identity.tokenizer_fingerprint
    path = paths.token_frequencies(entry.name, tokenizer)
    corpus = corpus_of(entry, paths)
    version = digest(corpus.digest, entry.settings_digest, tokenizer, CODE_VERSION)[:16]
    counted = _counted(entry.name, paths, model, version)
    if counted is not None:
        return FrequencyReport(entry.name, tokenizer, path, version, counted, None)
    limits = CountLimits(entry.max_documents, entry.max_bytes, entry.max_tokens_per_document)
    checkpoint = checkpoint_of(path)
    count = count_documents(
        model, corpus, f"the corpus {entry.name}", limits, checkpoint=checkpoint, on_progress=on_progress
    )
    table = table_of(
        count,
        model,
        corpus=entry.name,
        settings_digest=entry.settings_digest,
        data_version=version,
        run_id=step.run_id,
    )
    store.write(
        paths,
        step,
        TOKEN_FREQUENCIES,
        partition_of(entry.name, tokenizer),
        table,
        data_version=version,
        upstream={f"corpus/{entry.name}": corpus.digest, **corpus.upstream},
        tokenizer_fingerprint=tokenizer,
    )
    checkpoint.unlink(missing_ok=True)
    # Read again, and so compared with what was to be written, tokenizer and all.
    _, metadata = read_kept_frequencies(entry.name, model, paths)
    return FrequencyReport(entry.name, tokenizer, path, version, metadata, count)


def _counted(corpus: str, paths: DataPaths, model: TokenizedModel, version: str) -> Mapping[str, str] | None:
    """What the table says of itself where it is whole and has that version; else None: it is counted again."""
    try:
        _, metadata = read_kept_frequencies(corpus, model, paths)
    except DataError:
        return None
    return metadata if data_version(metadata) == version else None
