"""Token-frequency tables, one for each corpus and tokenizer: finding and reading them, and bringing them up to date."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit_pipeline.detectors.detector_inputs import TokenFrequencies
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.corpus_stream import Corpus, corpus_from_files, corpus_from_hub, corpus_from_source
from audit_pipeline.extras.corpora.token_count import (
    CODE_VERSION,
    CorpusCount,
    CountLimits,
    Progress,
    build_frequency_table,
    compute_counts_sha256,
    count_documents,
    locate_checkpoint,
)
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns, read_parquet
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TOKEN_FREQUENCIES, digest

_REMEDY = "count the corpus again"
_NEEDED = ("tokens", "tokenizer_fingerprint", "corpus_digest")


def read_frequencies(path: Path, model: TokenizedModel) -> TokenFrequencies:
    """The table at ``path`` as frequencies of the model's tokens.

    A model whose vocabulary is padded beyond the table's gets zeros there: two models may share a tokenizer. Raises
    DataError where there is no table, it is damaged, its metadata are missing, or it is another tokenizer's.
    """
    return _frequencies_from_table(*_read_table(path), path, model)


def _frequencies_from_table(
    table: pa.Table, metadata: Mapping[str, str], path: Path, model: TokenizedModel
) -> TokenFrequencies:
    theirs, ours = metadata["tokenizer_fingerprint"], model.identity.tokenizer_fingerprint
    if theirs != ours:
        raise DataError(
            f"{path} was counted with another tokenizer ({theirs}) than that of {model.entry.name} ({ours}): "
            f"{_REMEDY} with --tokenizer {model.entry.name}"
        )
    ids = table.column("token_id").to_numpy()
    counts = table.column("count").to_numpy()
    if not np.array_equal(ids, np.arange(len(ids))) or (counts < 0).any():
        raise DataError(f"{path} is damaged: its rows are not the ids 0, 1, 2, … with their counts; {_REMEDY}")
    if str(int(counts.sum())) != metadata["tokens"]:
        raise DataError(
            f"{path} is damaged: its counts come to {int(counts.sum())}, not {metadata['tokens']}; {_REMEDY}"
        )
    if metadata["counts_sha256"] != compute_counts_sha256(counts):
        raise DataError(f"{path} is damaged: its counts are not those that were written; {_REMEDY}")
    missing = max(0, model.vocab_size - len(counts))
    return TokenFrequencies(np.pad(counts.astype(np.int64), (0, missing)), model.vocab_size)


def read_corpus_frequencies(
    corpus: str, model: TokenizedModel, paths: DataPaths
) -> tuple[TokenFrequencies, Mapping[str, str]]:
    """The table of a configured corpus for the model's tokenizer, compared with its lineage, and its metadata.

    Raises DataError as :func:`read_frequencies` does, and where it is not as it was written.
    """
    partition = build_partition(corpus, model.identity.tokenizer_fingerprint)
    store.require_intact_partition(paths, TOKEN_FREQUENCIES, partition, label=f"the token frequencies of {corpus}")
    path = paths.token_frequencies(corpus, model.identity.tokenizer_fingerprint)
    table, metadata = _read_table(path)
    return _frequencies_from_table(table, metadata, path, model), metadata


def find_frequencies(model: TokenizedModel, paths: DataPaths) -> tuple[TokenFrequencies, Mapping[str, str]]:
    """The table of the model's reference corpus for its tokenizer, and its data version by its name in the lineage.

    Raises ConfigError where references.yaml cannot be read or names no such corpus, and DataError, saying in one line
    what to do, where the model's start-token policy is not always, it names no corpus, the table was not counted,
    or under other settings than the corpus has now, or cannot be read.
    """
    name = model.entry.name
    if model.entry.start_token_policy != "always":
        raise DataError("dc_pdd scores the first token too: it needs the start-token policy 'always'")
    if model.entry.reference_corpus is None:
        raise DataError(f"no reference corpus: give {name} a reference_corpus in config/models.yaml")
    entry = load_references().get_entry(model.entry.reference_corpus)
    tokenizer = model.identity.tokenizer_fingerprint
    if not paths.token_frequencies(entry.name, tokenizer).exists():
        raise DataError(
            f"the tokens of {entry.name} have not been counted with the tokenizer of {name}: materialise "
            f"token_frequencies for {entry.name}|{name}, or give --frequencies a table of corpus-audit count"
        )
    frequencies, metadata = read_corpus_frequencies(entry.name, model, paths)
    if metadata.get("settings_digest") != entry.settings_digest:
        raise DataError(
            f"the tokens of {entry.name} were counted under other settings than config/references.yaml has now: "
            f"materialise token_frequencies for {entry.name}|{name} again"
        )
    version = metadata.get("data_version", "")
    return frequencies, {f"token_frequencies/{build_partition(entry.name, tokenizer)}": version}


def find_countable_corpus(model: ModelEntry) -> ReferenceEntry | None:
    """The model's reference corpus, where an audit counts it itself: it is not on the hub, and dc_pdd can use it.

    Raises ConfigError where references.yaml cannot be read or names no such corpus.
    """
    corpus, references = model.reference_corpus, load_references()
    if corpus is None or model.start_token_policy != "always" or not references.names:
        # Without a file of corpora none is configured; the scores of dc_pdd say what is missing.
        return None
    entry = references.get_entry(corpus)
    return None if entry.hub is not None else entry


def read_metadata_if_whole(corpus: str, model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """What the table of a corpus for the model's tokenizer says of itself; None where no whole one is there."""
    with suppress(DataError):
        return read_corpus_frequencies(corpus, model, paths)[1]
    return None


def read_table_version(model: ModelEntry, tokenizer_fingerprint: str, paths: DataPaths) -> Mapping[str, str]:
    """The version of the table that scoring would take, by its name in the lineage, of what the table says of itself.

    None of it is checked: for listings of many models. Raises the AuditError of what cannot be read.
    """
    if model.reference_corpus is None or model.start_token_policy != "always":
        return {}
    entry = load_references().get_entry(model.reference_corpus)
    path = paths.token_frequencies(entry.name, tokenizer_fingerprint)
    if not path.exists() or (metadata := _read_table(path)[1]).get("settings_digest") != entry.settings_digest:
        return {}
    return {f"token_frequencies/{build_partition(entry.name, tokenizer_fingerprint)}": metadata.get("data_version", "")}


def build_partition(corpus: str, tokenizer_fingerprint: str) -> str:
    """The partition of a table in the lineage."""
    return f"{corpus}|{tokenizer_fingerprint}"


def _read_table(path: Path) -> tuple[pa.Table, Mapping[str, str]]:
    if not path.exists():
        raise DataError(f"{path}: there is no such table of token frequencies")
    try:
        table = read_parquet(path)
        counted = cast_to_columns(table, TOKEN_FREQUENCIES)
    except (pa.ArrowException, OSError, DataError) as error:
        raise DataError(
            f"{path} is not a readable table of token frequencies: {to_one_line(error)}; {_REMEDY}"
        ) from error
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    lacking = [name for name in _NEEDED if not metadata.get(name)]
    if lacking:
        raise DataError(f"{path} does not say what it was counted with ({', '.join(lacking)} missing): {_REMEDY}")
    return counted, metadata


@dataclass(frozen=True)
class FrequencyReport:
    """A table that is up to date. ``count`` is what was counted for it now; None where it was up to date before.

    ``metadata`` is what the table says of itself (count.build_frequency_table).
    """

    corpus: str
    tokenizer_fingerprint: str
    path: Path
    data_version: str
    metadata: Mapping[str, str]
    count: CorpusCount | None

    def read_number(self, name: str) -> int:
        """Return a number of the metadata: tokens, documents, skipped_rows, vocab_size."""
        return int(self.metadata[name])


def corpus_from_entry(entry: ReferenceEntry, paths: DataPaths) -> Corpus:
    """The documents of a configured corpus.

    Raises DataError (or another AuditError) where they cannot be read, saying what to do.
    """
    if entry.package is not None:
        return corpus_from_source(entry.package, paths)
    if entry.path is not None:
        return corpus_from_files(entry.path, entry.text_column)
    if entry.hub is None or entry.files is None:
        raise TypeError(f"{entry.name} has neither package nor path nor hub")
    return corpus_from_hub(entry.hub, entry.files, entry.revision, entry.text_column)


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
    (or another AuditError) where the corpus cannot be read, or holds no document that can be used.
    """
    tokenizer = model.identity.tokenizer_fingerprint
    path = paths.token_frequencies(entry.name, tokenizer)
    corpus = corpus_from_entry(entry, paths)
    version = digest(corpus.digest, entry.settings_digest, tokenizer, CODE_VERSION)[:16]
    counted = read_metadata_if_whole(entry.name, model, paths)
    if counted is not None and counted.get("data_version", "") == version:
        return FrequencyReport(entry.name, tokenizer, path, version, counted, None)
    limits = CountLimits(entry.max_documents, entry.max_bytes, entry.max_tokens_per_document)
    checkpoint = locate_checkpoint(path)
    count = count_documents(
        model, corpus, f"the corpus {entry.name}", limits, checkpoint=checkpoint, on_progress=on_progress
    )
    table = build_frequency_table(
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
        build_partition(entry.name, tokenizer),
        table,
        data_version=version,
        upstream={f"corpus/{entry.name}": corpus.digest, **corpus.upstream},
        tokenizer_fingerprint=tokenizer,
    )
    checkpoint.unlink(missing_ok=True)
    # Read again, and so compared with what was to be written, tokenizer and all.
    _, metadata = read_corpus_frequencies(entry.name, model, paths)
    return FrequencyReport(entry.name, tokenizer, path, version, metadata, count)
