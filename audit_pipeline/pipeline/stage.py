"""The declaration of an asset, and the decorator ``@audit_asset`` for the functions in ``assets/``.

A declared asset is a :class:`Stage`. ``assets/__init__.py`` lists the stages of this project. Installed packages add
their stages through an entry point (registry.py). The Dagster definitions, the plan of an audit, the warehouse, the
report and several commands are built from the declarations. Inputs that people change outside Dagster, such as the
files of a model, are :class:`ObservedInput`.

This module does not import Dagster, because the import takes longer than a dry run or an audit with nothing to do.
Therefore :class:`StageCheck`, :class:`CheckResult` and :class:`StageJob` replace Dagster's types.
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
"""The dimensions of assets with one partition per benchmark and model."""


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
        description: A sentence that is true if the check passes.
        is_warning: Whether a failed check is shown as a warning instead of an error.
        blocking: Whether a failed check fails the partition. The product is kept.
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
        data_version: The version of the product's content, or None if the product is not versioned.
        metadata: The metadata for the UI.
        checks: Check results by name.
        status: ``done``, or the reason why nothing was made: ``not_applicable`` or ``not_requested``.
    """

    data_version: str | None = None
    metadata: UiMetadata = field(default_factory=UiMetadata)
    checks: Mapping[str, CheckResult] = field(default_factory=dict)
    status: str = "done"


class StageJob(NamedTuple):
    """A job of the UI that materialises stages."""

    name: str
    description: str
    done: str  # the description of its results in a summary, such as "sources fetched"


REFRESH_SOURCES = StageJob("refresh_sources", "Fetch the documents of every source.", "sources fetched")
BUILD_BENCHMARKS = StageJob("build_benchmarks", "Build benchmarks from their sources' documents.", "benchmarks built")
AUDIT_PAIRS = StageJob(
    "audit_pairs",
    "Run models on benchmarks: token statistics, scores, evaluations, and the optional assets that benchmarks or "
    "config/stages.yaml request.",
    "pairs audited",
)
PUBLISH = StageJob("publish", "Rebuild the warehouse and the report with all results.", "warehouse and report built")

FETCHED_AGAIN = {"documents": "a new fetch was requested"}
"""The value of ``Scope.again`` with which an audit fetches sources even if their documents are current."""

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
        """Return the record of this run for the ledger.

        Args:
            code_version: The code version if it depends on the options. By default the stage's.
        """
        return LineageStep.now(self.run_id, self.stage.name, code_version or self.stage.code_version)

    def write(self, table: Table, rows: Any, upstream: Mapping[str, str]) -> str:
        """Write the partition's rows of a table together with their ledger entry.

        Args:
            table: The table.
            rows: An Arrow table, or dictionaries.
            upstream: The versions of the inputs, by input name.

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
        """Return the benchmark and the model of the partition, as a pair."""
        return Pair(*self.partition_names)

    @property
    def partition_names(self) -> Sequence[str]:
        """Return the names in the partition key, one per dimension."""
        return self.partition.split("|", 1)


def _get_no_inputs(partition: str, state: WorkspaceState) -> Inputs:
    return {}


@dataclass(eq=False, kw_only=True)
class Stage:
    """A declared asset, which :func:`audit_asset` creates from a function.

    A partition is stale if the versions of its inputs changed. ``get_inputs`` returns the versions that it would be
    made of now. ``get_recorded`` returns the versions that it was made of, by default from the ledger. The code version
    is always an input. If the stage is on request, its options in config/stages.yaml are an input, too.

    Attributes:
        name: The asset's name.
        description: The asset's description in the UI.
        dimensions: The names of the partition's dimensions; empty for an unpartitioned asset.
        group: The asset group.
        job: The job that materialises it. Stages with the same job and dimensions are one step.
        make: Makes one partition.
        deps: The stages that it is made of, or one product of a stage (``documents/sotu``). ALL_RESULTS stands for
            every stage with results in the warehouse.
        observes: The names of its observed inputs. Their dimension is one of the stage's dimensions.
        code_version: The version of the code. If you raise it, existing products become stale.
        tables: The tables that it writes. The UI shows the first table. The ledger entry of that table records the
            inputs.
        checks: The checks by name. Dagster gets a further check of the limits of the columns.
        options: The options of the asset, and of its entry in config/stages.yaml.
        section: A folder with the query and the template of its report section.
        kinds: The kinds that the UI shows.
        lock: The name of the file lock that its runs hold, such as ``gpu``.
        late_after_days: Number of days without a new product after which the UI warns.
        standalone_job: A job for this stage alone, if other stages share its main job.
        standalone_options: The options in the standalone job.
        is_optional: Whether the stages that depend on it can run without it.
        is_on_request: Whether it is made only if config/stages.yaml requests it.
        has_findings: Whether its products are findings of a pair. A pair without findings is reported as missing.
        progress_message: The line that a command prints before it makes a partition. {} stands for a name of the
            partition key.
        blocked_message: The reason why a stage that depends on it has to wait.
        missing_message: The reason for making a missing product.
        change_messages: The reason for making a stale product, by the name of the changed input, or by the part of the
            name before the slash.
        sources_purpose: The reason why an audit fetches sources for this stage that the user did not name.
        get_inputs: Returns the current versions of a partition's inputs.
        get_recorded: Returns the versions that a partition was made of, or None if it is missing.
        list_partitions: Lists the partitions that an audit of a scope makes.
        list_sources: Lists the sources that an audit of a scope fetches first.
        get_notes: Returns the messages that a command prints after it made a partition.
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
    get_inputs: InputsFunction = _get_no_inputs
    get_recorded: RecordedFunction | None = None
    list_partitions: PartitionsFunction | None = None
    list_sources: PartitionsFunction | None = None
    get_notes: NotesFunction | None = None

    @property
    def input_name(self) -> str:
        """Return the name of the stage's products in the ledger and in the inputs of other stages.

        It is the name of the first table, or the stage's own name if it has no table.
        """
        return self.tables[0].name if self.tables else self.name

    @property
    def has_inputs(self) -> bool:
        """Return whether the stage declares inputs. Without them, the plan never finds its products stale."""
        return self.get_inputs is not _get_no_inputs

    @property
    def is_in_warehouse(self) -> bool:
        """Return whether the warehouse has rows of the stage."""
        has_rows = any(table.in_warehouse and table.has_files for table in self.tables)
        return has_rows and self.dimensions != SOURCE

    def inputs(self, function: InputsFunction) -> InputsFunction:
        """Register the decorated function, which returns the versions that a partition would be made of now.

        The function raises an AuditError if something keeps the partition from being made.
        """
        self.get_inputs = function
        return function

    def recorded(self, function: RecordedFunction) -> RecordedFunction:
        """Register the decorated function, which returns the versions that a partition was made of.

        It returns None if the partition is missing.
        """
        self.get_recorded = function
        return function

    def partitions(self, function: PartitionsFunction) -> PartitionsFunction:
        """Register the decorated function, which lists the partitions that an audit of a scope makes."""
        self.list_partitions = function
        return function

    def sources(self, function: PartitionsFunction) -> PartitionsFunction:
        """Register the decorated function, which lists the sources that an audit of a scope fetches first."""
        self.list_sources = function
        return function

    def notes(self, function: NotesFunction) -> NotesFunction:
        """Register the decorated function, which returns the messages that a command prints after it made a partition.

        The function raises a DataError if a blocking check found the product unfit.
        """
        self.get_notes = function
        return function


ALL_RESULTS = "*"
"""The entry of ``deps`` that stands for every stage with results in the warehouse."""


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

    Dagster observes its version. If the version changes, the UI shows the dependent assets as stale, and automation
    requests them. The plan does not use these versions, because it reads the configuration itself.

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
    """Declare the decorated function as an observed input, and use its name and docstring as name and description.

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
