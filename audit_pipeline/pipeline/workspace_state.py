"""The state of a workspace: the configuration, the models and the data folder, as planning reads them.

Each fact is read once, and only if an asset needs it.

Loading a model takes seconds, and the first time every byte of its weights is read. Callers that inspect many models,
or inspect them every half minute, use the fingerprints that were last recorded under a model's name (SeenModel). These
come from the model's latest run or from its card, which is written when it is first loaded. If the files changed since,
the next audit detects the change. The fingerprints of models that were never loaded are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.benchmarks.model_inputs import TEMPLATE, build_template_name
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.chat_template import compute_template_version
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import ModelIdentity, entry_version, list_earlier_fingerprints
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.scoring.needs.provider import SeenIdentities, all_providers
from audit_pipeline.scoring.session import find_current_upstream
from audit_pipeline.sources.config import SourceSettings, load_source_settings
from audit_pipeline.sources.store import read_settings_digest
from audit_pipeline.store.control_files import read_trained_version
from audit_pipeline.store.files import read_json_if_whole
from audit_pipeline.store.ledger import read_latest_run, read_ledger
from audit_pipeline.store.ledger_records import Entry, Ledger, PairOutcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents_version
from audit_pipeline.tables import CONTROL_TEXTS, DOCUMENTS, Pair, digest, parse_pair
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
        models: Loaded models, and models with recorded fingerprints, by name.
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
        """Return the documents of a source as an input. The version is UNKNOWN, or None if they were not fetched."""
        is_fetched = read_settings_digest(source, self.paths) is not None
        return {f"{DOCUMENTS.name}/{source}": UNKNOWN if is_fetched else None}

    def build_control_input(self, control: str) -> dict[str, str | None]:
        """Return a control as an input. The version is UNKNOWN, or None if the control was not trained."""
        is_trained = read_trained_version(control, self.paths) is not None
        return {f"{CONTROL_TEXTS.name}/{control}": UNKNOWN if is_trained else None}

    def find_control(self, model: str) -> str | None:
        """Return the name of the control that a model belongs to, or None if it belongs to no control."""
        entry = self.entries.get(model)
        return entry.control.name if entry is not None and entry.control is not None else None

    def find_statistics_version(self, pair: Pair) -> str | None:
        """Return the version that a pair's token statistics would have now, or None if a needed fact is unknown."""
        model = self.models.get(pair.model)
        built = self.find_built_digest(pair.benchmark)
        if model is None or built is None or (isinstance(model, SeenModel) and not model.is_known):
            return None
        return compute_statistics_version(model, built)

    def find_needed_versions(self, model: str, kind: str) -> Mapping[str, str] | None:
        """Return the versions of the inputs that detectors need besides the model, or None if they are unknown.

        Args:
            model: The model's name.
            kind: The kind of input, such as ``reference_model``. For a loaded model, the versions of all kinds are
                returned.
        """
        known = self.models.get(model)
        if isinstance(known, TokenizedModel):
            return self.read_once(("needs", model), lambda: find_current_upstream(known, self.paths))
        return None if known is None else known.needs[kind]

    def find_template_version(self, pair: Pair, table: str) -> str | None:
        """Return the version that the chat template of a pair's model has now.

        It is None if the model is not loaded or its template is unreadable. It is also None if the latest rows of the
        table were not made from conversations.
        """
        entries = self.ledger.list_entries(table, pair.partition)
        model = self.models.get(pair.model)
        name = build_template_name(pair.model)
        if not entries or name not in entries[-1].upstream or not isinstance(model, TokenizedModel):
            return None
        try:
            return join_versions(TEMPLATE, {name: compute_template_version(model.located)})
        except AuditError:
            return None

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


Card = Mapping[str, Any]
"""The content of a model card (models/tokenized_model.py, write_card)."""
_LONG_AGO = "0001-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class SeenModel:
    """The recorded facts of a model, from its latest load or run.

    Attributes:
        entry: Its entry in config/models.yaml.
        identity: The latest recorded fingerprints.
        start_token: The start token, or None if it is unknown.
        context_length: The context length in tokens, or 0 if it is unknown.
        is_known: Whether the facts suffice to compute the version of its token statistics.
        is_current: Whether its entry, and the names, sizes and times of its files, are unchanged since the last load.
        needs: The versions of other inputs of detectors, by the kind of input, such as ``reference_model``. None if
            they are unknown.
    """

    entry: ModelEntry
    identity: ModelIdentity
    start_token: str | None
    context_length: int
    is_known: bool
    is_current: bool
    needs: Mapping[str, Mapping[str, str] | None]


def find_seen_models(entries: Mapping[str, ModelEntry], paths: DataPaths) -> dict[str, SeenModel]:
    """Return the models that were seen before, by name."""
    cards: dict[str, Card] = {}
    for card in _read_cards(paths):
        if card.get("fingerprint"):
            cards[card["fingerprint"]] = card
    seen = _find_latest_identities(cards, paths)
    models = {}
    for name, entry in entries.items():
        if name in seen:
            card = cards.get(seen[name][0], {})
            models[name] = _build_seen_model(entry, seen, card, paths)
    return models


def _find_latest_identities(cards: Mapping[str, Card], paths: DataPaths) -> SeenIdentities:
    """Return the latest fingerprints of each model and its tokenizer, by the model's name.

    Args:
        cards: Model cards by the model's fingerprint.
        paths: The data folder.
    """
    sightings: list[tuple[datetime, str, str, str]] = []
    for fingerprint, card in cards.items():
        if card.get("name"):
            loaded_at = datetime.fromisoformat(card.get("first_loaded_at") or _LONG_AGO)
            sightings.append((loaded_at, fingerprint, card.get("tokenizer_fingerprint") or "", card["name"]))
    for entry in read_ledger(paths).entries:
        if entry.model_fingerprint is not None:
            model = parse_pair(entry.partition).model
            sightings.append((entry.finished_at, entry.model_fingerprint, entry.tokenizer_fingerprint or "", model))
    return {model: (fingerprint, tokenizer) for _, fingerprint, tokenizer, model in sorted(sightings)}


def _build_seen_model(entry: ModelEntry, seen: SeenIdentities, card: Card, paths: DataPaths) -> SeenModel:
    weights, tokenizer = seen[entry.name]
    # Models with other names can have the same files and therefore the same card, but another start token.
    has_own_card = card.get("name") == entry.name
    has_context = isinstance(card.get("context_length"), int)
    before = _read_earlier_fingerprints(entry, tokenizer, paths) if tokenizer else None
    needs: dict[str, Mapping[str, str] | None] = {}
    for provider in all_providers().values():
        if provider.source is not None:
            needs[provider.source] = provider.read_seen_versions(entry, seen, paths)
    return SeenModel(
        entry,
        ModelIdentity(weights, tokenizer, "", "", before),
        start_token=entry.start_token or card.get("start_token"),
        context_length=card["context_length"] if has_context else 0,
        is_known=bool(tokenizer) and has_context and (has_own_card or entry.start_token is not None),
        is_current=has_own_card and card.get("entry_version") == entry_version(entry),
        needs=needs,
    )


def _read_cards(paths: DataPaths) -> list[Card]:
    """Return the cards of all models that were ever loaded, except unreadable cards."""
    folder = paths.model_card("any").parent
    cards: list[Card] = []
    for path in sorted(folder.glob("*.json")):
        if path != paths.digest_cache:
            card = read_json_if_whole(path)
            if isinstance(card, dict):
                cards.append(card)
    return cards


def _read_earlier_fingerprints(entry: ModelEntry, tokenizer: str, paths: DataPaths) -> frozenset[str] | None:
    try:
        return list_earlier_fingerprints(entry, tokenizer, paths)
    except AuditError:
        # The earlier models are unknown. `corpus-audit doctor` reports the damaged file.
        return frozenset()
