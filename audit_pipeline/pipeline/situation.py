"""What there is: everything that stages need to know what a product would be made of now, and what it was made of.

Each fact is read once, and only where a stage asks for it. Models are those that a caller has loaded, or as they were
seen last (remembered_models.py): of the others it is not known how they would be run now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from audit_pipeline.benchmarks.build import read_built_digest
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.config.entries import Entries, EntryFile
from audit_pipeline.errors import AuditError, DataError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.pipeline.freshness import Facts, Plan, inputs_of_entry, parse_pair, plan_steps
from audit_pipeline.pipeline.remembered_models import SeenModel
from audit_pipeline.pipeline.requests import AuditRequest
from audit_pipeline.pipeline.stage import UNKNOWN, Product, Stage
from audit_pipeline.pipeline.stages.registry import OF_PAIRS, PAIR, STAGES, get_stage
from audit_pipeline.pipeline.stages.scores import STATISTICS_STAGE
from audit_pipeline.pipeline.stages.settings import StageEntry, is_asked_for, load_stage_entries
from audit_pipeline.scoring.session import find_current_upstream
from audit_pipeline.sources.config import SourceSettings, load_source_settings
from audit_pipeline.store.ledger import Entry, Ledger, PairOutcome, is_latest_file_whole, read_latest_run, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import read_documents_version
from audit_pipeline.tables import Pair, digest

T = TypeVar("T")


@dataclass(frozen=True)
class Scope:
    """What is to be up to date, each with all that it is made of.

    ``pairs``: by default every model on every benchmark. ``again``: by a stage's name, why its products are made
    whatever is there.
    """

    benchmarks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    pairs: tuple[Pair, ...] = ()
    sources: tuple[str, ...] = ()
    again: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_all_pairs(cls, benchmarks: Iterable[str], models: Iterable[str]) -> Scope:
        """Every model on every benchmark."""
        benchmarks, models = tuple(benchmarks), tuple(models)
        return cls(benchmarks, models, tuple(Pair(benchmark, model) for model in models for benchmark in benchmarks))


@dataclass
class Situation:
    """The configuration, the models and the data folder as they are; see the module's words.

    ``specs`` and ``entries``: the benchmarks and models that are asked about, by name. ``ask_hub``: rows of the hub are
    looked at there. ``config``: the folder of the configuration, by default the workspace's. ``is_whole``: whether the
    latest file of a table's partition is as it was written.
    """

    paths: DataPaths
    specs: Mapping[str, BenchmarkSpec] = field(default_factory=dict)
    entries: Mapping[str, ModelEntry] = field(default_factory=dict)
    models: Mapping[str, TokenizedModel | SeenModel] = field(default_factory=dict)
    ask_hub: bool = False
    config: Path | None = None
    is_whole: Callable[[str, str], bool] | None = None
    _known: dict[object, Any] = field(default_factory=dict)
    """What was read so far, by what it is of."""

    def _read_once(self, of: object, read: Callable[[], T]) -> T:
        if of not in self._known:
            self._known[of] = read()
        found: T = self._known[of]
        return found

    @cached_property
    def source_settings(self) -> SourceSettings:
        return load_source_settings(self.config)

    def load_entries(self, file: EntryFile[T]) -> Entries[T]:
        """The entries of a file of the configuration."""
        entries: Entries[T] = self._read_once(("file", file.name), lambda: file.load(self.config))
        return entries

    @cached_property
    def stage_entries(self) -> Entries[StageEntry]:
        """What config/stages.yaml asks for."""
        return load_stage_entries(self.config)

    @cached_property
    def ledger(self) -> Ledger:
        return read_ledger(self.paths)

    @cached_property
    def _outcomes(self) -> Mapping[tuple[Pair, str], PairOutcome]:
        """The outcome of every pair at each stage that was recorded last."""
        return {(outcome.pair, outcome.stage): outcome for outcome in self.ledger.outcomes}

    def find_latest_outcome(self, pair: Pair) -> PairOutcome | None:
        """The outcome recorded last for a pair, whatever was found since; None where every run could do it."""
        outcomes = (outcome for (of, _), outcome in self._outcomes.items() if of == pair)
        return max(outcomes, key=lambda outcome: outcome.at, default=None)

    def find_built_digest(self, benchmark: str) -> str | None:
        """The digest of a benchmark as it is built; None where it is not."""
        return self._read_once(("built", benchmark), lambda: read_built_digest(benchmark, self.paths))

    def version_of_source(self, source: str) -> str:
        """The version of a source's documents; raises DataError where they are not there."""
        return self._read_once(("source", source), lambda: read_documents_version(self.paths, source))

    def build_presence_input(self, stage: str, partition: str) -> dict[str, str | None]:
        """A product as an input whose version others cover: whether it is there at all."""
        is_there = self.facts_of(Product(stage, partition)).recorded is not None
        return {f"{get_stage(stage).input_name}/{partition}": UNKNOWN if is_there else None}

    def find_control(self, model: str) -> str | None:
        """The control that a model is of; None for every other model."""
        entry = self.entries.get(model)
        return entry.control.name if entry is not None and entry.control is not None else None

    def find_needed_versions(self, model: str, kind: str) -> Mapping[str, str] | None:
        """What detectors of a model need of a kind, as ``reference_model``, with versions; None: not known."""
        known = self.models.get(model)
        if isinstance(known, TokenizedModel):
            return self._read_once(("needs", model), lambda: find_current_upstream(known, self.paths))
        return None if known is None else known.needs[kind]

    def find_latest_entry(self, table: str, partition: str) -> Entry | None:
        """The ledger's line of the rows that were written last; None where there are none that a whole line
        explains."""

        def read() -> Entry | None:
            try:
                return read_latest_run(self.paths, table, partition)
            except DataError:
                return None

        return self._read_once(("latest", table, partition), read)

    def facts_of(self, product: Product) -> Facts:
        """What is known of a product."""
        return self._read_once(
            ("facts", product), lambda: self._read_facts(get_stage(product.stage), product.partition)
        )

    def _read_facts(self, stage: Stage, partition: str) -> Facts:
        is_whole = self.is_whole or partial(is_latest_file_whole, self.paths)
        lacking = not all(is_whole(table.name, partition) for table in stage.tables if table.append_only)
        damage = f"a file of its {stage.name.replace('_', ' ')} is damaged or gone" if lacking else None
        failure, recorded = self._find_failure(stage, partition), None
        if stage.recorded is not None:
            recorded = stage.recorded(partition, self)
        elif stage.tables and (entry := self.find_latest_entry(stage.input_name, partition)) is not None:
            recorded = inputs_of_entry(entry)
        try:
            inputs: dict[str, str | None] = {"code": stage.code}
            if stage.is_on_request:
                entry_of_stage = self.stage_entries.get(stage.name)
                options = None if entry_of_stage is None else entry_of_stage.options
                inputs["settings"] = digest(dict(options)) if options else None
            return Facts({**inputs, **stage.inputs(partition, self)}, recorded, None, damage, failure)
        except AuditError as error:
            return Facts({}, recorded, str(error), damage, failure)

    def _find_failure(self, stage: Stage, partition: str) -> PairOutcome | None:
        """Why the last run gave a pair up at this stage, or at the next where nothing but the ledger knows of it.

        What was made since of the stage, or of what it makes, counts: a run that leaves a pair out makes nothing of it.
        """
        if stage.dimensions != PAIR:
            return None
        without_files = all(table.file_of(self.paths, partition) is None for table in stage.tables)
        names = [stage.name, *(below.name for below in STAGES if without_files and stage.name in below.after)]
        for name in names:
            outcome = self._outcomes.get((parse_pair(partition), name))
            if outcome is not None:
                since = [below for below in STAGES if below.name == name or name in below.after]
                tables = [table.name for below in since for table in below.tables]
                entries = [entry for table in tables for entry in self.ledger.list_entries(table, partition)]
                if all(entry.finished_at < outcome.at for entry in entries):
                    return outcome
        return None

    def plan(
        self,
        scope: Scope,
        stages: Iterable[Stage] = STAGES,
        again: Mapping[str, str] | None = None,
        left_alone: Mapping[str, str] | None = None,
    ) -> Plan:
        """The steps of ``stages`` that bring all that the scope takes up to date (see :func:`freshness.plan`)."""
        stages = list(stages)
        wanted = {stage.name: tuple(self.list_partitions(stage, scope)) for stage in stages}
        return plan_steps(stages, wanted, self.facts_of, scope.again if again is None else again, left_alone)

    def list_sources(self, scope: Scope) -> Iterator[str]:
        """The sources that the scope asks for, and those that products of its stages are made of."""
        yield from scope.sources
        for stage in STAGES:
            if stage.sources is not None:
                yield from stage.sources(scope, self)

    def explain_sources(self, scope: Scope) -> Mapping[str, str]:
        """Return why sources that the scope does not name itself are fetched, by source."""
        purposes: dict[str, str] = {}
        for stage in STAGES:
            if stage.sources is not None and stage.sources_purpose:
                purposes |= dict.fromkeys(stage.sources(scope, self), stage.sources_purpose)
        return {source: purpose for source, purpose in purposes.items() if source not in scope.sources}

    def list_partitions(self, stage: Stage, scope: Scope) -> Iterable[str]:
        """The partitions of a stage that an audit of the scope takes."""
        if stage.partitions is not None:
            return stage.partitions(scope, self)
        if stage.dimensions == PAIR:
            names = [pair.partition for pair in scope.pairs]
        else:
            names = list(scope.benchmarks) if stage.dimensions == ("benchmark",) else []
        return [name for name in names if not stage.is_on_request or is_asked_for(stage, name, self.stage_entries)]


def build_situation(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> Situation:
    """The situation of a request; ``models``: those of which it is known how they would be run now."""
    entries = {entry.name: entry for entry in request.models}
    specs = {spec.name: spec for spec in request.benchmarks}
    return Situation(paths, specs, entries, {model.entry.name: model for model in models})


def scope_of_request(request: AuditRequest) -> Scope:
    """The models on the benchmarks of a request, with what its options ask for again."""
    options = request.options
    scope = Scope.of_all_pairs([spec.name for spec in request.benchmarks], [entry.name for entry in request.models])
    if options.again:
        again = {stage.name: "it is asked for again" for stage in OF_PAIRS}
        return replace(scope, again=again)
    more = [kind for kind in options.kinds if kind != "base"]
    if not more:
        return scope
    return replace(scope, again={STATISTICS_STAGE.name: f"more token statistics are asked for: {', '.join(more)}"})


def plan_audit(request: AuditRequest, models: Sequence[TokenizedModel], paths: DataPaths) -> Plan:
    """All that is to be done now, but for warehouse and report."""
    return build_situation(request, models, paths).plan(scope_of_request(request), STAGES)
