"""The declaration of an asset, and the decorator ``@audit_asset`` that makes one of a function in ``assets/``.

A declared asset is a :class:`Stage`. ``assets/__init__.py`` lists the stages of this project; an installed package
brings its own (registry.py). Everything else reads the declaration: the Dagster assets with their partitions, checks
and jobs, the plan of an audit, the tables of the warehouse, the sections of the report, ``forget``, ``doctor`` and
``pack``. What people change outside Dagster, such as the files of a model, is an :class:`ObservedInput`.

This module does not import Dagster, because a dry run and an audit with nothing to do are answered without it
(importing Dagster takes longer than either). For the same reason :class:`StageCheck`, :class:`CheckResult` and
:class:`StageJob` stand in for Dagster's own types.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import BaseModel

from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import Pair, Table

if TYPE_CHECKING:
    from audit_pipeline.pipeline.workspace_state import Inputs, Scope, WorkspaceState

    InputsFunction = Callable[[str, WorkspaceState], Inputs]
    RecordedFunction = Callable[[str, WorkspaceState], Inputs | None]
    PartitionsFunction = Callable[[Scope, WorkspaceState], Iterable[str]]
    NotesFunction = Callable[[str, DataPaths], Iterable[str]]
    VersionFunction = Callable[[str, WorkspaceState], str | None]

Body = Sequence[tuple[object, ...]]
"""The rows of a table that the UI shows."""

SOURCE = ("source",)
BENCHMARK = ("benchmark",)
PAIR = ("benchmark", "model")
"""The partitions of assets per benchmark and model."""


class Product(NamedTuple):
    """One partition of a stage, such as ``scores`` of ``wikimia_64|pythia``."""

    stage: str
    partition: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}"


@dataclass(frozen=True)
class UiMetadata:
    """The metadata that the UI shows for a product.

    Attributes:
        rows: Number of rows written, or None if the product is not a table.
        values: Single values by name.
        tables: Header and body of small tables, by title.
        pictures: Pictures as Markdown, by title.
        paths: Paths of files or folders, by name.
        page: The report page of the product.
    """

    rows: int | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, tuple[tuple[str, ...], Body]] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    page: Path | None = None


@dataclass(frozen=True)
class StageCheck:
    """The declaration of a check of a stage's products.

    Attributes:
        description: What holds if the check passes.
        is_warning: A failed check warns and is not an error.
        blocking: A failed check fails the partition; the product stays in place.
    """

    description: str
    is_warning: bool = True
    blocking: bool = False


@dataclass(frozen=True)
class CheckResult:
    """The result of a check for one product."""

    passed: bool
    description: str | None = None
    metadata: UiMetadata = field(default_factory=UiMetadata)


@dataclass(frozen=True)
class StageResult:
    """The result of making one product.

    Attributes:
        data_version: The version of the product's content, or None if it has none.
        metadata: The metadata for the UI.
        checks: Check results by name.
        status: ``done``, or why nothing was made: ``not_applicable``, ``not_requested``.
    """

    data_version: str | None = None
    metadata: UiMetadata = field(default_factory=UiMetadata)
    checks: Mapping[str, CheckResult] = field(default_factory=dict)
    status: str = "done"


class StageJob(NamedTuple):
    """A job of the UI that materialises stages; ``done`` describes its results in a summary."""

    name: str
    description: str
    done: str


REFRESH_SOURCES = StageJob("refresh_sources", "Fetch the documents of every source.", "sources fetched")
BUILD_BENCHMARKS = StageJob("build_benchmarks", "Build benchmarks from their sources' documents.", "benchmarks built")
AUDIT_PAIRS = StageJob(
    "audit_pairs",
    "Run models on benchmarks: token statistics, scores, evaluations, and what benchmarks or config/stages.yaml ask "
    "for besides.",
    "pairs audited",
)
PUBLISH = StageJob(
    "publish", "Bring the warehouse and the report up to date with what has been audited.", "warehouse and report built"
)

FETCHED_AGAIN = {"documents": "it is to be fetched again"}
"""The ``again`` of a scope that fetches its sources in any case."""

Group = Literal[
    "1_sources",
    "2_benchmarks",
    "3_model_runs",
    "4_findings",
    "5_reports",
    "6_sources_on_request",
    "7_controls_on_request",
]
"""The groups of the UI, in the order of the flow."""


@dataclass
class StageRun:
    """The context in which a stage makes one partition.

    Attributes:
        stage: The stage.
        stages: All declared stages.
        partition: The partition key.
        partitions: All partition keys of the same run.
        paths: The data folder.
        run_id: The id of the Dagster run.
        options: The stage's options, an instance of ``stage.options``, or None.
        models: The models (pipeline/dagster/resources.py, ModelsResource).
        log: The log of the run.
        progress: Opens a progress callback for a pass of a model.
        shared: State that the stage keeps between the partitions of a run.
    """

    stage: Stage
    stages: Sequence[Stage]
    partition: str
    partitions: Sequence[str]
    paths: DataPaths
    run_id: str
    options: Any
    models: Any
    log: logging.Logger
    progress: Callable[[str], AbstractContextManager[Callable[[Any], None]]]
    shared: dict[str, Any]

    def step(self, code_version: str = "") -> LineageStep:
        """Return this run for the ledger.

        Args:
            code_version: The code version if it depends on the options. By default the stage's.
        """
        return LineageStep.now(self.run_id, self.stage.name, code_version or self.stage.code_version)

    def write(self, table: Table, rows: Any, upstream: Mapping[str, str]) -> str:
        """Write the partition's rows of a table together with their ledger entry.

        Args:
            table: The table.
            rows: An Arrow table, or dictionaries.
            upstream: The versions of the inputs, by the names that the stage's inputs have.

        Returns:
            The data version.

        Raises:
            DataError: If a value is beyond the limits of its column.
        """
        filled = rows if isinstance(rows, pa.Table) else table_from_rows(list(rows), table)
        settings = None if self.options is None else self.options.model_dump(mode="json")
        return store.write(self.paths, self.step(), table, self.partition, filled, upstream=upstream, settings=settings)

    @property
    def pair(self) -> Pair:
        """The pair of a partition per benchmark and model."""
        return Pair(*self.partition_names)

    @property
    def partition_names(self) -> Sequence[str]:
        """The names of the partition, one per dimension."""
        return self.partition.split("|", 1)


def _no_inputs(partition: str, state: WorkspaceState) -> Inputs:
    return {}


@dataclass(eq=False, kw_only=True)
class Stage:
    """A declared asset. :func:`audit_asset` makes one of a function.

    What a stage is made of is compared by versions. ``inputs`` returns the versions that a partition would be made of
    now. ``recorded`` returns the versions that it was made of; by default the ledger's. The code version is always
    among the inputs, and the options in config/stages.yaml are if the stage is on request.

    Attributes:
        name: The asset's name.
        description: The asset's description in the UI.
        dimensions: The names of the partition's dimensions; empty for an unpartitioned asset.
        group: The asset group.
        job: The job that materialises it. Stages with the same job and dimensions are one step.
        make: Makes one partition.
        deps: The stages that it is made of, or one product of a stage (``documents/sotu``). ALL_RESULTS: every stage
            with results in the warehouse.
        observes: The observed inputs of the same partition, or of its dimension, by name.
        code_version: The version of the code. Raise it, and existing products are made again.
        tables: The tables that it writes. The first is shown; its ledger entry records the inputs.
        checks: The checks by name. Column limits are a check of their own.
        options: The options of the asset, and of its entry in config/stages.yaml.
        section: A folder with the query and the template of its report section.
        kinds: The kinds that the UI shows.
        lock: The file lock that its runs take in turn, such as ``gpu``.
        late_after_days: Days without a new product after which the UI warns.
        standalone_job: A job for this stage alone, if it shares its job with others.
        standalone_options: The options in that job.
        is_optional: Stages that depend on it go on without it.
        is_on_request: Made only if config/stages.yaml asks for it.
        has_findings: Its products are findings of a pair: what is known of a pair is missing until there is one.
        progress_message: The line that a command prints before a partition, with its names in {}.
        blocked_message: Why a stage that depends on it has to wait.
        missing_message: The reason for making a missing product.
        change_messages: The reason for making a product again, by the name of the changed input or its first part.
        sources_purpose: Why an audit fetches its sources, for people who did not ask for them.
    """

    name: str
    description: str
    dimensions: tuple[str, ...]
    group: Group
    job: StageJob
    make: Callable[[StageRun], StageResult]
    deps: tuple[str, ...] = ()
    observes: tuple[str, ...] = ()
    code_version: str = "1"
    tables: tuple[Table, ...] = ()
    checks: Mapping[str, StageCheck] = field(default_factory=dict)
    options: type[BaseModel] | None = None
    section: Traversable | None = None
    kinds: frozenset[str] = frozenset({"parquet"})
    lock: str | None = None
    late_after_days: int | None = None
    standalone_job: StageJob | None = None
    standalone_options: Mapping[str, object] = field(default_factory=dict)
    is_optional: bool = False
    is_on_request: bool = False
    has_findings: bool = True
    progress_message: str = ""
    blocked_message: str = "{} is made first"
    missing_message: str = "it is missing"
    change_messages: Mapping[str, str] = field(default_factory=dict)
    sources_purpose: str = ""
    get_inputs: InputsFunction = _no_inputs
    get_recorded: RecordedFunction | None = None
    list_partitions: PartitionsFunction | None = None
    list_sources: PartitionsFunction | None = None
    get_notes: NotesFunction | None = None

    @property
    def input_name(self) -> str:
        """The name of its products as inputs of others, and in the ledger: its first table, else its own name."""
        return self.tables[0].name if self.tables else self.name

    @property
    def has_inputs(self) -> bool:
        """Whether it declares what a partition is made of. If not, the plan cannot find it out of date."""
        return self.get_inputs is not _no_inputs

    @property
    def is_in_warehouse(self) -> bool:
        """Whether the warehouse holds rows of it."""
        has_rows = any(table.in_warehouse and table.has_files for table in self.tables)
        return has_rows and self.dimensions != SOURCE

    def inputs(self, function: InputsFunction) -> InputsFunction:
        """Decorate the function that returns what a partition would be made of now.

        The function raises an AuditError if something keeps the partition from being made.
        """
        self.get_inputs = function
        return function

    def recorded(self, function: RecordedFunction) -> RecordedFunction:
        """Decorate the function that returns what a partition was made of, or None if it is missing."""
        self.get_recorded = function
        return function

    def partitions(self, function: PartitionsFunction) -> PartitionsFunction:
        """Decorate the function that lists the partitions that an audit of a scope takes."""
        self.list_partitions = function
        return function

    def sources(self, function: PartitionsFunction) -> PartitionsFunction:
        """Decorate the function that lists the sources that an audit of a scope fetches first."""
        self.list_sources = function
        return function

    def notes(self, function: NotesFunction) -> NotesFunction:
        """Decorate the function that returns what a command reports of a partition once it is made.

        The function raises a DataError if a blocking check found the product unfit.
        """
        self.get_notes = function
        return function


ALL_RESULTS = "*"
"""The dependency on every stage with results in the warehouse."""


def audit_asset(
    *,
    partitions: tuple[str, ...],
    group: Group,
    job: StageJob,
    deps: Sequence[str] = (),
    tables: Sequence[Table] = (),
    kinds: Iterable[str] = ("parquet",),
    **declaration: Any,
) -> Callable[[Callable[[StageRun], StageResult]], Stage]:
    """Declare the decorated function as an asset; its name and docstring are the asset's name and description.

    Args:
        partitions: The dimensions of a partition: SOURCE, BENCHMARK, PAIR, or others; () for an unpartitioned asset.
        group: The asset group.
        job: The job that materialises it.
        deps: The names of the assets that it is made of.
        tables: The tables that it writes.
        kinds: The kinds that the UI shows.
        declaration: The other attributes of :class:`Stage`.
    """

    def declare(make: Callable[[StageRun], StageResult]) -> Stage:
        description = " ".join((inspect.getdoc(make) or "").split())
        return Stage(
            name=make.__name__,
            description=description,
            dimensions=partitions,
            group=group,
            job=job,
            make=make,
            deps=tuple(deps),
            tables=tuple(tables),
            kinds=frozenset(kinds),
            **declaration,
        )

    return declare


@dataclass(frozen=True)
class ObservedInput:
    """An input that people change outside Dagster: an entry of the configuration, or the files of a model.

    Dagster observes its version, so that the UI shows what it makes stale, and automation requests what follows from
    it. The plan reads the same facts itself.

    Attributes:
        name: The name of the asset that Dagster observes.
        description: The asset's description in the UI.
        dimension: The dimension of its partitions.
        group: The asset group.
        kinds: The kinds that the UI shows.
        get_version: Returns the version of a partition now, or None if it is unknown.
    """

    name: str
    description: str
    dimension: str
    group: Group
    kinds: frozenset[str]
    get_version: VersionFunction


def observed_input(*, dimension: str, group: Group, kinds: Iterable[str]) -> Callable[[VersionFunction], ObservedInput]:
    """Declare the decorated function as an observed input; its name and docstring are the input's.

    The function returns the version of a partition, or None if it is unknown. It raises an AuditError if the entry
    cannot be used.

    Args:
        dimension: The dimension of its partitions.
        group: The asset group.
        kinds: The kinds that the UI shows.
    """

    def declare(get_version: VersionFunction) -> ObservedInput:
        description = " ".join((inspect.getdoc(get_version) or "").split())
        return ObservedInput(get_version.__name__, description, dimension, group, frozenset(kinds), get_version)

    return declare
