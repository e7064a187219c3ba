"""What a declaration of a product is made of: a table, its columns, how it is kept and what it is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.store.paths import DataPaths

PartitionedBy = Literal["none", "source", "benchmark", "pair", "study", "corpus", "overlap", "control"]
"""What one partition is of. ``corpus``: of a corpus and a tokenizer; ``overlap``: of a benchmark and a corpus."""

_PARTITION_COLUMNS: Mapping[PartitionedBy, tuple[str, ...]] = {
    "pair": ("benchmark", "model"),
    "overlap": ("benchmark", "corpus"),
}

Storage = Literal["runs", "rewritten", "cache", "inside", "given", "derived"]
"""How rows are kept. ``runs``: append-only, every run adds a file to its partition; ``rewritten``: one file per
partition, which every run writes anew; ``cache``: in the parts of the cache of token statistics; ``inside``: in the
folder of another product. The others are the warehouse's alone: ``given`` row by row, from the ledger, JSON documents,
the configuration and the build itself, or ``derived`` from other tables by sql/fills/."""


Order = Literal["sorted", "as read", "any"]
"""In which order the warehouse takes the rows of a run's files. ``sorted``: by file and row. The others are for tables
that would take gigabytes to sort: ``as read``, since a sum of scores depends on their order in its last digit; ``any``,
which takes three quarters of the time, where nothing adds the numbers up."""


@dataclass(frozen=True)
class Column:
    """A column of a file, of the warehouse's table, or of both; ``description`` is its comment everywhere.

    ``ge``, ``le``, ``one_of``: what its values may be; compared at every write. ``file_only``: the warehouse leaves it
    out.
    ``stored_as``: its name in the warehouse, where that is another. ``sql``: not in the file, the warehouse fills it by
    this expression over the file's columns. ``sql_type``: its type in the warehouse, where Arrow has none.
    ``quotes_text``: a warehouse without text leaves it empty.
    """

    name: str
    type: pa.DataType
    description: str
    null: bool = False
    ge: float | None = None
    le: float | None = None
    one_of: tuple[str, ...] = ()
    file_only: bool = False
    stored_as: str = ""
    sql: str = ""
    sql_type: str = ""
    quotes_text: bool = False

    def with_changes(self, description: str = "", **fields: Any) -> Column:
        """The same column of another table, where it means or allows something else."""
        return replace(self, description=description or self.description, **fields)

    @property
    def warehouse_name(self) -> str:
        return self.stored_as or self.name

    @property
    def has_limits(self) -> bool:
        """Whether not every value of its type is allowed."""
        return self.ge is not None or self.le is not None or bool(self.one_of)

    def find_fault(self, values: pa.ChunkedArray) -> str | None:
        """What is wrong with some of the values of this column; None where nothing is."""
        checks = [(self.ge, pc.less, "below"), (self.le, pc.greater, "above")]
        for limit, is_beyond, words in checks:
            if limit is not None and pc.any(is_beyond(values, limit)).as_py():
                return f"column {self.name} holds a value {words} {limit:g}"
        if self.one_of and (others := set(pc.unique(values).to_pylist()) - {*self.one_of, None}):
            return f"column {self.name} holds {sorted(others)[0]!r}, which is none of {', '.join(self.one_of)}"
        return None


class ColumnType:
    """A type of columns. Called with a name, a description and further fields of :class:`Column`, it declares one."""

    def __init__(self, type_: pa.DataType, **fields: Any) -> None:
        self._type, self._fields = type_, fields

    def __call__(self, name: str, description: str, **fields: Any) -> Column:
        return Column(name, self._type, description, **{**self._fields, **fields})


def list_type_of(type_: pa.DataType) -> pa.DataType:
    """A list none of whose elements is null."""
    return pa.list_(pa.field("item", type_, nullable=False))


string, boolean, day = ColumnType(pa.string()), ColumnType(pa.bool_()), ColumnType(pa.date32())
int8, int32, int64 = ColumnType(pa.int8()), ColumnType(pa.int32()), ColumnType(pa.int64())
count = ColumnType(pa.int32(), ge=0)
double = ColumnType(pa.float64())
fraction = ColumnType(pa.float64(), ge=0, le=1)
moment = ColumnType(pa.timestamp("us", tz="UTC"))
strings, int64s = ColumnType(list_type_of(pa.string())), ColumnType(list_type_of(pa.int64()))


def choice(name: str, values: tuple[str, ...], meaning: str = "") -> Column:
    """A text that is one of ``values``, which its description lists before the ``meaning``."""
    description = " | ".join(values) + (f": {meaning}" if meaning else "")
    return Column(name, pa.string(), description, one_of=values)


@dataclass(frozen=True, eq=False)
class Table:
    """One product of the pipeline. Everything else that must know it reads this.

    ``comment``: what it is, in one sentence. ``key``: the columns that no two rows of the warehouse's table have in
    common. ``made_from``: the tables whose rows it is computed from. ``holds_text``: the columns that, one after the
    other, are a text that a model reads; its digest names the text in the cache.
    ``current``: what its rows are, for the view current_NAME of the latest run of every pair and the macro NAME_as_of;
    empty where a run does not replace all that runs before it wrote (the table has a view of its own then, or none).
    ``order``: of its rows in the warehouse (``Order``). ``in_warehouse``: whether the warehouse has a table of it.
    ``file``: where the file of a partition lies, where not at its usual place; ``manifest``: the JSON document next to
    it.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitioned_by: PartitionedBy = "none"
    storage: Storage = "derived"
    made_from: tuple[str, ...] = ()
    holds_text: tuple[str, ...] = ()
    current: str = ""
    order: Order = "sorted"
    in_warehouse: bool = True
    file: Callable[[DataPaths, str], Path] | None = None
    manifest: Callable[[DataPaths, str], Path] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of its Parquet files, each with its description."""
        return pa.schema(
            pa.field(column.name, column.type, nullable=column.null, metadata={"description": column.description})
            for column in self.columns
            if not column.sql
        )

    @property
    def names(self) -> list[str]:
        """The names of its files' columns."""
        return list(self.schema.names)

    def field(self, name: str) -> pa.Field:
        """A column of its files, for tables that are not kept."""
        return self.schema.field(name)

    def empty_table(self) -> pa.Table:
        return self.schema.empty_table()

    def column(self, name: str) -> Column:
        """A column's declaration, for another table that has the same; raises KeyError where there is none."""
        return {column.name: column for column in self.columns}[name]

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the warehouse's table."""
        return tuple(column for column in self.columns if not column.file_only)

    @property
    def append_only(self) -> bool:
        return self.storage == "runs"

    @property
    def has_files(self) -> bool:
        """Whether every partition has files of its own in Parquet."""
        return self.storage in ("runs", "rewritten") and bool(self.columns)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The warehouse's columns, of text, that say which partition a row is of, and which run where each adds a file:
        what rows of one file have in common."""
        if self.storage == "cache":
            return ("model_fingerprint",)
        of_partition = _PARTITION_COLUMNS.get(self.partitioned_by, (self.partitioned_by,))
        return (*of_partition, "run_id") if self.append_only else of_partition

    def texts(self, rows: pa.Table) -> list[str]:
        """The text that each of ``rows`` holds: the columns ``holds_text`` in order, null as no text."""
        columns = [rows.column(name).to_pylist() for name in self.holds_text]
        return ["".join(part or "" for part in parts) for parts in zip(*columns, strict=True)]

    def without_text(self) -> Table:
        """The same with nothing in the columns that quote audited texts."""
        return replace(
            self,
            columns=tuple(
                replace(column, sql="NULL" if column.null else "[]") if column.quotes_text else column
                for column in self.columns
            ),
        )

    def file_of(self, paths: DataPaths, partition: str, run_id: str = "") -> Path | None:
        """The file of a partition, and of a run where each adds one; None where partitions have none of their own."""
        if self.file is not None:
            return self.file(paths, partition)
        if self.storage == "runs":
            return paths.run_file(self.name, partition, run_id)
        return paths.rewritten_file(self.name, self.partitioned_by, partition) if self.storage == "rewritten" else None


def description_of(field: pa.Field) -> str:
    """The meaning of a column, as written in its schema."""
    return str((field.metadata or {}).get(b"description", b"").decode())
