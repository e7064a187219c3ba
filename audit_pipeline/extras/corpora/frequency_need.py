"""The token frequencies that a detector needs: their tables, one per corpus and tokenizer, and their provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit_pipeline.detectors.dc_pdd import FREQUENCY_TABLE
from audit_pipeline.detectors.detector_inputs import TokenFrequencies
from audit_pipeline.errors import AuditError, DataError, TransientError, to_one_line
from audit_pipeline.extras.corpora import token_count
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
from audit_pipeline.extras.corpora.corpus_stream import Corpus, corpus_from_files, corpus_from_hub, corpus_from_source
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import Lookup, Provider, SeenIdentities
from audit_pipeline.store import store
from audit_pipeline.store.files import cast_to_columns, read_parquet
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TOKEN_FREQUENCIES, digest

_REMEDY = "count the corpus again with corpus-audit count"
_REQUIRED_METADATA = ("tokens", "tokenizer_fingerprint", "corpus_digest")


def read_frequencies(path: Path, model: TokenizedModel) -> TokenFrequencies:
    """Read a table of token counts as the frequencies of the model's tokens.

    Two models can share a tokenizer but pad their vocabularies differently. Token ids that the table lacks get count 0.

    Raises:
        DataError: If the table is missing, is corrupt, lacks metadata or belongs to another tokenizer.
    """
    return _frequencies_from_table(*_read_table(path), path, model)


def _frequencies_from_table(
    table: pa.Table, metadata: Mapping[str, str], path: Path, model: TokenizedModel
) -> TokenFrequencies:
    of_table = metadata["tokenizer_fingerprint"]
    of_model = model.identity.tokenizer_fingerprint
    if of_table != of_model:
        raise DataError(
            f"{path} was counted with the tokenizer {of_table}, but {model.entry.name} has the tokenizer {of_model}: "
            f"{_REMEDY} --tokenizer {model.entry.name}"
        )
    ids = table.column("token_id").to_numpy()
    counts = table.column("count").to_numpy()
    if not np.array_equal(ids, np.arange(len(ids))) or (counts < 0).any():
        raise DataError(f"{path} is corrupt: its rows are not the ids 0, 1, 2, … with their counts; {_REMEDY}")
    if str(int(counts.sum())) != metadata["tokens"]:
        raise DataError(
            f"{path} is corrupt: the sum of its counts is {int(counts.sum())}, not {metadata['tokens']}; {_REMEDY}"
        )
    if metadata["counts_sha256"] != token_count.compute_counts_sha256(counts):
        raise DataError(f"{path} is corrupt: the checksum of its counts does not match; {_REMEDY}")
    missing = max(0, model.vocab_size - len(counts))
    return TokenFrequencies(np.pad(counts.astype(np.int64), (0, missing)), model.vocab_size)


def read_corpus_frequencies(
    corpus: str, model: TokenizedModel, paths: DataPaths
) -> tuple[TokenFrequencies, Mapping[str, str]]:
    """Read the table of a configured corpus for the model's tokenizer, and its metadata.

    Raises:
        DataError: If :func:`read_frequencies` raises it or the table differs from its lineage.
    """
    partition = build_partition(corpus, model.identity.tokenizer_fingerprint)
    store.require_intact_partition(paths, TOKEN_FREQUENCIES, partition, label=f"the token frequencies of {corpus}")
    path = paths.token_frequencies(corpus, model.identity.tokenizer_fingerprint)
    table, metadata = _read_table(path)
    return _frequencies_from_table(table, metadata, path, model), metadata


def read_reference_frequencies(model: TokenizedModel, paths: DataPaths) -> tuple[TokenFrequencies, Mapping[str, str]]:
    """Read the table of the model's reference corpus, and its data version by its name in the lineage.

    Raises:
        ConfigError: If references.yaml is unreadable or does not contain the corpus.
        DataError: If the model has no reference corpus or its start-token policy is not ``always``. Also if the table
            is missing, unreadable, or counted with other settings.
    """
    name = model.entry.name
    if model.entry.start_token_policy != "always":
        raise DataError(
            "dc_pdd also scores the first token, so it requires a start token before each text: set "
            f"start_token_policy to always in the entry of {name} in config/models.yaml"
        )
    if model.entry.reference_corpus is None:
        raise DataError(f"{name} has no reference corpus: set reference_corpus in its entry in config/models.yaml")
    entry = load_references().get_entry(model.entry.reference_corpus)
    tokenizer = model.identity.tokenizer_fingerprint
    if not paths.token_frequencies(entry.name, tokenizer).exists():
        raise DataError(
            f"the tokens of {entry.name} have not been counted with the tokenizer of {name}: materialise the asset "
            f"token_frequencies for {entry.name}|{name} in Dagster, or pass a table of `corpus-audit count` with "
            "--frequencies"
        )
    frequencies, metadata = read_corpus_frequencies(entry.name, model, paths)
    if metadata.get("settings_digest") != entry.settings_digest:
        raise DataError(
            f"the tokens of {entry.name} were counted with other settings than in config/references.yaml: "
            f"materialise the asset token_frequencies for {entry.name}|{name} again in Dagster"
        )
    version = metadata.get("data_version", "")
    return frequencies, {f"token_frequencies/{build_partition(entry.name, tokenizer)}": version}


def find_countable_corpus(model: ModelEntry) -> ReferenceEntry | None:
    """Return the model's reference corpus if an audit can count its tokens, else None.

    An audit does not count a corpus of the hub. The counts serve only the detector dc_pdd, so an audit does not count
    either if the model's start-token policy excludes dc_pdd.

    Raises:
        ConfigError: If references.yaml is unreadable or does not contain the corpus.
    """
    corpus = model.reference_corpus
    references = load_references()
    if corpus is None or model.start_token_policy != "always" or not references.names:
        # If references.yaml is missing, the scores of dc_pdd state this as the reason.
        return None
    entry = references.get_entry(corpus)
    if entry.hub is not None:
        return None
    return entry


def read_metadata_if_intact(corpus: str, model: TokenizedModel, paths: DataPaths) -> Mapping[str, str] | None:
    """Return the metadata of a corpus's table for the model's tokenizer, or None if it is missing or corrupt."""
    with suppress(DataError):
        return read_corpus_frequencies(corpus, model, paths)[1]
    return None


def read_table_version(model: ModelEntry, tokenizer_fingerprint: str, paths: DataPaths) -> Mapping[str, str]:
    """Return the data version of the table that scoring would use, by its name in the lineage. Empty without a table.

    The counts are not verified, because listings call this function for many models.

    Raises:
        AuditError: If references.yaml or the table is unreadable.
    """
    if model.reference_corpus is None or model.start_token_policy != "always":
        return {}
    entry = load_references().get_entry(model.reference_corpus)
    path = paths.token_frequencies(entry.name, tokenizer_fingerprint)
    if not path.exists():
        return {}
    _, metadata = _read_table(path)
    if metadata.get("settings_digest") != entry.settings_digest:
        return {}
    return {f"token_frequencies/{build_partition(entry.name, tokenizer_fingerprint)}": metadata.get("data_version", "")}


def build_partition(corpus: str, tokenizer_fingerprint: str) -> str:
    """Return the partition name of a corpus and a tokenizer, as in the lineage."""
    return f"{corpus}|{tokenizer_fingerprint}"


def _read_table(path: Path) -> tuple[pa.Table, Mapping[str, str]]:
    if not path.exists():
        raise DataError(f"{path}: this table of token frequencies does not exist. Count a corpus: corpus-audit count")
    try:
        table = read_parquet(path)
        counted = cast_to_columns(table, TOKEN_FREQUENCIES)
    except (pa.ArrowException, OSError, DataError) as error:
        raise DataError(
            f"{path} is not a readable table of token frequencies: {to_one_line(error)}; {_REMEDY}"
        ) from error
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    missing = [name for name in _REQUIRED_METADATA if not metadata.get(name)]
    if missing:
        raise DataError(f"{path} lacks the metadata {', '.join(missing)}: {_REMEDY}")
    return counted, metadata


@dataclass(frozen=True)
class FrequencyReport:
    """A table of token frequencies that is up to date.

    Attributes:
        metadata: The metadata of the table (token_count.build_frequency_table).
        count: The count of this run, or None if the table was up to date before.
    """

    corpus: str
    tokenizer_fingerprint: str
    path: Path
    data_version: str
    metadata: Mapping[str, str]
    count: token_count.CorpusCount | None

    def read_number(self, name: str) -> int:
        """Return a number from the metadata. ``name`` is tokens, documents, skipped_rows or vocab_size."""
        return int(self.metadata[name])


def corpus_from_entry(entry: ReferenceEntry, paths: DataPaths) -> Corpus:
    """Return the corpus that an entry of references.yaml describes.

    Raises:
        AuditError: If the documents are unreadable.
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
    on_progress: token_count.Progress | None = None,
) -> FrequencyReport:
    """Count the tokens of a corpus and store the table, unless a table of these documents and settings exists.

    A killed count resumes from its checkpoint. The lineage row is written before the table.

    Raises:
        AuditError: If the corpus is unreadable or contains no usable document.
    """
    tokenizer = model.identity.tokenizer_fingerprint
    path = paths.token_frequencies(entry.name, tokenizer)
    corpus = corpus_from_entry(entry, paths)
    version = digest(corpus.digest, entry.settings_digest, tokenizer, token_count.CODE_VERSION)[:16]
    counted = read_metadata_if_intact(entry.name, model, paths)
    if counted is not None and counted.get("data_version", "") == version:
        return FrequencyReport(entry.name, tokenizer, path, version, counted, None)
    limits = token_count.CountLimits(entry.max_documents, entry.max_bytes, entry.max_tokens_per_document)
    checkpoint = token_count.locate_checkpoint(path)
    count = token_count.count_documents(
        model, corpus, f"the corpus {entry.name}", limits, checkpoint=checkpoint, on_progress=on_progress
    )
    table = token_count.build_frequency_table(
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
    # Read the written table again, because reading checks it against its lineage and the model's tokenizer.
    _, metadata = read_corpus_frequencies(entry.name, model, paths)
    return FrequencyReport(entry.name, tokenizer, path, version, metadata, count)


class FrequenciesProvider(Provider[TokenFrequencies]):
    """The provider of token frequencies. All texts share one table.

    The table comes from the user, or else from the reference corpus of the model's entry. A user's table that is
    unreadable or belongs to another tokenizer raises DataError.
    """

    need = FREQUENCY_TABLE
    source = "token_frequencies"

    @staticmethod
    def read_seen_versions(model: ModelEntry, seen: SeenIdentities, paths: DataPaths) -> Mapping[str, str] | None:
        """Return the data version of the table without loading the model.

        ``seen`` has the last known fingerprints of each model. The result is None if that of the tokenizer is unknown,
        or if the table is unreadable.
        """
        _, tokenizer = seen[model.name]
        if not tokenizer:
            return None
        try:
            return read_table_version(model, tokenizer, paths)
        except AuditError:
            return None

    @cached_property
    def _lookup(self) -> tuple[TokenFrequencies | None, Mapping[str, str], str | None]:
        """Return the table, its data version for the lineage, and the reason if the table is missing."""
        inputs = self._scope.user_inputs
        is_usable = self._model.entry.start_token_policy == "always"
        if inputs is not None and inputs.frequencies is not None and is_usable:
            return read_frequencies(inputs.frequencies, self._model), {}, None
        try:
            return *read_reference_frequencies(self._model, self._scope.paths), None
        except TransientError:
            raise
        except AuditError as error:
            return None, {}, str(error)

    def explain_unmet(self) -> str | None:
        """Return why the table is missing or unreadable, or None if it is usable."""
        return self._lookup[2]

    @property
    def upstream(self) -> Mapping[str, str]:
        """Return the data version of the table by its name in the lineage."""
        return self._lookup[1]

    def build_lookup(self, texts: Sequence[str]) -> Lookup[TokenFrequencies]:
        """Return a function that maps each text to its token frequencies: the same table for every text."""
        table = self._lookup[0]
        assert table is not None, "callers check explain_unmet() before"
        return lambda scored: table
