"""A stage: one kind of product, declared once. Everything else that must know it reads this declaration.

From the stages (pipeline/stages/registry.py: this project's own, and those of installed packages) follow the assets
with their partitions, checks and jobs, the order of an audit, what is out of date and why, the tables of the warehouse,
the sections of the report, and what `forget`, `doctor` and `pack` look at.
"""

from __future__ import annotations

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
    from audit_pipeline.pipeline.situation import Scope, Situation

Inputs = Mapping[str, str | None]
"""Versions by the name of what they are of: a product (``examples/wikimia_64``), ``code``, ``settings``, ``model``.
None of a product: it is not there. None of anything else, and UNKNOWN: it is not known, and not compared."""

UNKNOWN = ""
"""The version of a product that is there, where it is not known or others cover it."""

Body = Sequence[tuple[object, ...]]


class Product(NamedTuple):
    """A partition of a stage, such as ``scores`` of ``wikimia_64|pythia``."""

    stage: str
    partition: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}"


@dataclass(frozen=True)
class Shown:
    """What the UI shows of a product: values, tables as header and body, pictures as Markdown, paths.

    ``rows``: how many were written, None where it is not of a table. ``page``: the file of the report's page on it.
    """

    rows: int | None = None
    values: Mapping[str, object] = field(default_factory=dict)
    tables: Mapping[str, tuple[tuple[str, ...], Body]] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    page: Path | None = None


@dataclass(frozen=True)
class Check:
    """What is checked of a product. ``is_warning``: whether a failure warns and is no error; ``blocking``: whether it
    ends the run, with what it made left in place."""

    description: str
    is_warning: bool = True
    blocking: bool = False


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    passed: bool
    description: str | None = None
    shown: Shown = field(default_factory=Shown)


@dataclass(frozen=True)
class Made:
    """What was made: its data version, what is shown of it, and what its checks found, by name."""

    data_version: str | None = None
    shown: Shown = field(default_factory=Shown)
    checks: Mapping[str, Finding] = field(default_factory=dict)
    status: str = "done"


class Job(NamedTuple):
    """A job of the UI that runs stages; ``done`` is what is said of what it made."""

    name: str
    description: str
    done: str


REFRESH_SOURCES = Job("refresh_sources", "Fetch the documents of every source.", "sources fetched")
BUILD_BENCHMARKS = Job("build_benchmarks", "Build benchmarks from their sources' documents.", "benchmarks built")
AUDIT_PAIRS = Job(
    "audit_pairs",
    "Run models on benchmarks: token statistics, scores, evaluations, and what benchmarks or config/stages.yaml ask "
    "for besides.",
    "pairs audited",
)

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
    """What a stage is handed to make one partition.

    ``partitions``: all of the same run, this one among them; ``shared``: what the stage keeps between them. ``models``:
    pipeline/dagster/resources.py, Models. ``progress``: a callback for how far a pass of a model is.
    """

    stage: Stage
    partition: str
    partitions: Sequence[str]
    paths: DataPaths
    run_id: str
    options: Any
    models: Any
    log: logging.Logger
    progress: Callable[[str], AbstractContextManager[Callable[[Any], None]]]
    shared: dict[str, Any]

    def step(self, code: str = "") -> LineageStep:
        """This run as the ledger names it; ``code``: where the version depends on the options."""
        return LineageStep.now(self.run_id, self.stage.name, code or self.stage.code)

    def write(self, table: Table, rows: Any, upstream: Mapping[str, str]) -> str:
        """Write the partition's rows of a table with their line in the ledger; returns their data version.

        ``rows``: an Arrow table, or dictionaries. ``upstream``: the versions of what they were made of, by the names
        that the stage's inputs have. Raises DataError where a value is beyond the limits of its column.
        """
        filled = rows if isinstance(rows, pa.Table) else table_from_rows(list(rows), table)
        settings = None if self.options is None else self.options.model_dump(mode="json")
        return store.write(self.paths, self.step(), table, self.partition, filled, upstream=upstream, settings=settings)

    @property
    def pair(self) -> Pair:
        """The pair that the partition is."""
        return Pair(*self.partition_names)

    @property
    def partition_names(self) -> Sequence[str]:
        """The names that the partition is made of, one a dimension."""
        return self.partition.split("|", 1)


@dataclass(frozen=True, eq=False)
class Stage:
    """A kind of product.

    ``dimensions``: what a partition is of, by name. ``after``: the stages whose products it is made of, or one product
    of a stage (``documents/sotu``). ``code``: the version of the code; where it changes, what is there is made again.
    ``make`` makes one partition; ``tables`` are those that it writes, the first the one that is shown, and whose line
    in the ledger says what it was made of. ``section``: a folder with the query and the template of its section of the
    report.

    What is up to date: ``partitions`` names those that an audit takes (by default all of its dimensions, of the stages
    that ``config/stages.yaml`` asks for where ``is_on_request``), ``inputs`` what a partition would be made of now, and
    ``recorded`` what it was made of (by default what the ledger says). The version of the code is always among the
    inputs, that of the options in config/stages.yaml where it is on request. ``words`` is what is said of an input that
    changed, by its name or the first part of it; ``absent`` of a product that is not there; ``first`` of what waits for
    it. ``inputs`` raises the AuditError of what keeps it from being made.

    ``is_optional``: what follows goes on where it cannot be made. ``concludes``: a run in which partitions failed ends
    here, with the others done. ``options`` are those of its asset, and of its entry in config/stages.yaml.
    """

    name: str
    description: str
    dimensions: tuple[str, ...]
    group: Group
    job: Job
    make: Callable[[StageRun], Made]
    after: tuple[str, ...] = ()
    code: str = "1"
    tables: tuple[Table, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    options: type[BaseModel] | None = None
    section: Traversable | None = None
    kinds: frozenset[str] = frozenset({"parquet"})
    lock: str | None = None
    """The file lock that its runs take in turn: ``gpu``, say."""
    late_after_days: int | None = None
    """After how many days without a new product the UI says that it is late."""
    alone: Job | None = None
    """A job that runs it alone, where it is not the only stage of its job; ``alone_options`` are its options then."""
    alone_options: Mapping[str, object] = field(default_factory=dict)
    is_optional: bool = False
    is_on_request: bool = False
    concludes: bool = True
    step: str = ""
    """What a command says when a partition is about to be made, with its names in {}."""
    first: str = "{} is made first"
    absent: str = "it is not there"
    words: Mapping[str, str] = field(default_factory=dict)
    notes: Callable[[str, DataPaths], Iterable[str]] | None = None
    """What is reported of a partition once it was made; raises DataError where a check found it unfit."""
    partitions: Callable[[Scope, Situation], Iterable[str]] | None = None
    sources: Callable[[Scope, Situation], Iterable[str]] | None = None
    """The sources whose documents its products of a scope are made of: an audit fetches them first."""
    sources_purpose: str = ""
    """Why an audit fetches these sources, for people who did not ask for them."""
    inputs: Callable[[str, Situation], Inputs] = lambda partition, situation: {}
    recorded: Callable[[str, Situation], Inputs | None] | None = None

    @property
    def input_name(self) -> str:
        """What its products are called as inputs of others, and in the ledger: its first table, else its own name."""
        return self.tables[0].name if self.tables else self.name

    @property
    def is_in_warehouse(self) -> bool:
        """Whether the warehouse is made of it: it has rows of files that belong to no other product."""
        return any(table.in_warehouse and table.has_files for table in self.tables) and self.dimensions != ("source",)
