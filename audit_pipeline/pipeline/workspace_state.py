"""The state of a workspace: the configuration, the models and the data folder, as planning reads them.

Each fact is read once, and only if an asset needs it. Models are those that a caller has loaded, or those that were
last seen (remembered_models.py). The fingerprints of other models are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.remembered_models import SeenModel
from audit_pipeline.scoring.session import find_current_upstream
from audit_pipeline.sources.config import SourceSettings, load_source_settings
from audit_pipeline.sources.store import read_settings_digest
from audit_pipeline.store.control_files import read_trained_version
from audit_pipeline.store.ledger import read_latest_run, read_ledger
from audit_pipeline.store.ledger_records import Entry, Ledger, PairOutcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents_version
from audit_pipeline.tables import CONTROL_TEXTS, DOCUMENTS, Pair, digest
from audit_pipeline.token_statistics.cached_texts import compute_statistics_version

T = TypeVar("T")

Inputs = Mapping[str, str | None]
"""Versions by the name of the input: a product (``examples/wikimia_64``), ``code``, ``settings`` or ``model``.

If the version of a product is None, the product is missing. Other inputs with None, and inputs with UNKNOWN, have an
unknown version. Unknown versions are not compared.
"""

UNKNOWN = ""
"""The version of an existing product if it is unknown, or if other inputs cover it."""


@dataclass(frozen=True)
class Scope:
    """The products that an audit brings up to date, together with everything that they are made of.

    Attributes:
        benchmarks: Benchmarks by name.
        models: Models by name.
        pairs: Pairs to audit.
        sources: Sources to fetch.
        again: The reason for making a stage's products even if they are current, by the stage's name.
    """

    benchmarks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    sources: tuple[str, ...] = ()
    again: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_all_pairs(cls, benchmarks: Iterable[str], models: Iterable[str]) -> Scope:
        """Return the scope of every model on every benchmark."""
        benchmarks = tuple(benchmarks)
        models = tuple(models)
        pairs = tuple(Pair(benchmark, model) for model in models for benchmark in benchmarks)
        return cls(benchmarks, models, pairs)


@dataclass
class WorkspaceState:
    """The configuration, the models and the data folder, each fact read once.

    Attributes:
        paths: The data folder.
        specs: The planned benchmarks, by name.
        entries: The entries of the planned models, by name.
        models: Loaded or remembered models, by name.
        ask_hub: Whether to query the hub for changes of the data sets of benchmarks.
        config: The folder of the configuration. By default the workspace's.
        is_whole: Returns whether the latest file of a table's partition is intact. By default the file is checked.
    """

    paths: DataPaths
    specs: Mapping[str, BenchmarkSpec] = field(default_factory=dict)
    entries: Mapping[str, ModelEntry] = field(default_factory=dict)
    models: Mapping[str, TokenizedModel | SeenModel] = field(default_factory=dict)
    ask_hub: bool = False
    config: Path | None = None
    is_whole: Callable[[str, str], bool] | None = None
    _known: dict[object, Any] = field(default_factory=dict)
    """The facts that were read, by their keys."""

    def read_once(self, key: object, read: Callable[[], T]) -> T:
        """Return the fact with this key, which is read only at the first call."""
        if key not in self._known:
            self._known[key] = read()
        fact: T = self._known[key]
        return fact

    @cached_property
    def source_settings(self) -> SourceSettings:
        """Return the settings of config/sources.yaml."""
        return load_source_settings(self.config)

    def load_entries(self, file: EntryFile[T]) -> Entries[T]:
        """Return the entries of a file of the configuration."""
        entries: Entries[T] = self.read_once(("file", file.name), lambda: file.load(self.config))
        return entries

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger of the data folder."""
        return read_ledger(self.paths)

    @cached_property
    def outcomes(self) -> Mapping[tuple[Pair, str], PairOutcome]:
        """Return the last recorded outcome of every pair at each stage."""
        return {(outcome.pair, outcome.stage): outcome for outcome in self.ledger.outcomes}

    def find_latest_outcome(self, pair: Pair) -> PairOutcome | None:
        """Return the last recorded outcome of a pair, or None if no run failed or skipped it."""
        outcomes = (outcome for (recorded_pair, _), outcome in self.outcomes.items() if recorded_pair == pair)
        return max(outcomes, key=lambda outcome: outcome.at, default=None)

    def find_built_digest(self, benchmark: str) -> str | None:
        """Return the digest of a built benchmark, or None if it is not built."""
        return self.read_once(("built", benchmark), lambda: read_built_digest(benchmark, self.paths))

    def is_fit(self, benchmark: str) -> bool:
        """Return whether a benchmark is built and passed its blocking checks."""

        def check() -> bool:
            try:
                read_built(self.paths, benchmark).require_passed_checks()
            except AuditError:
                return False
            return True

        return self.read_once(("fit", benchmark), check)

    def read_source_version(self, source: str) -> str:
        """Return the version of a source's documents.

        Raises:
            DataError: If the documents are missing.
        """
        return self.read_once(("source", source), lambda: read_documents_version(self.paths, source))

    def build_documents_input(self, source: str) -> dict[str, str | None]:
        """Return the documents of a source as an input, with the version UNKNOWN, or None if they are missing."""
        is_fetched = read_settings_digest(source, self.paths) is not None
        return {f"{DOCUMENTS.name}/{source}": UNKNOWN if is_fetched else None}

    def build_control_input(self, control: str) -> dict[str, str | None]:
        """Return a trained control as an input, with the version UNKNOWN, or None if it is missing."""
        is_trained = read_trained_version(control, self.paths) is not None
        return {f"{CONTROL_TEXTS.name}/{control}": UNKNOWN if is_trained else None}

    def find_control(self, model: str) -> str | None:
        """Return the control that a model belongs to, or None if it belongs to none."""
        entry = self.entries.get(model)
        return entry.control.name if entry is not None and entry.control is not None else None

    def find_statistics_version(self, pair: Pair) -> str | None:
        """Return the version that a pair's token statistics would have now, or None if too little is known."""
        model = self.models.get(pair.model)
        built = self.find_built_digest(pair.benchmark)
        if model is None or built is None or (isinstance(model, SeenModel) and not model.is_known):
            return None
        return compute_statistics_version(model, built)

    def find_needed_versions(self, model: str, kind: str) -> Mapping[str, str] | None:
        """Return the versions of what detectors need besides the model itself, or None if they are unknown.

        Args:
            model: The model's name.
            kind: The kind of input, such as ``reference_model``. For a loaded model, the versions of all kinds are
                returned.
        """
        known = self.models.get(model)
        if isinstance(known, TokenizedModel):
            return self.read_once(("needs", model), lambda: find_current_upstream(known, self.paths))
        return None if known is None else known.needs[kind]

    def find_latest_entry(self, table: str, partition: str) -> Entry | None:
        """Return the ledger entry of a partition's latest rows, or None if the entry is missing or corrupt."""

        def read() -> Entry | None:
            try:
                return read_latest_run(self.paths, table, partition)
            except DataError:
                return None

        return self.read_once(("latest", table, partition), read)


def get_recorded_inputs(entry: Entry) -> dict[str, str | None]:
    """Return the inputs that a ledger entry records."""
    return {
        **entry.upstream,
        "code": entry.code_version,
        "model": entry.model_fingerprint,
        "endpoint": entry.model_fingerprint,
        "tokenizer": entry.tokenizer_fingerprint,
        "settings": digest(dict(entry.settings)) if entry.settings else None,
    }


def join_versions(kind: str, versions: Mapping[str, str] | None) -> str | None:
    """Return the versions of all inputs of a kind as one string, or None if they are unknown."""
    if versions is None:
        return None
    parts = [f"{name}={version}" for name, version in sorted(versions.items()) if name.startswith(f"{kind}/")]
    return " ".join(parts) or "none"
