"""The declaration of a table: its columns, storage, partitions and origin."""

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
"""The unit of a table's partitions. ``corpus`` means a partition per corpus and tokenizer, and ``overlap`` means a
partition per benchmark and corpus."""

_PARTITION_COLUMNS: Mapping[PartitionedBy, tuple[str, ...]] = {
    "pair": ("benchmark", "model"),
    "overlap": ("benchmark", "corpus"),
}

Storage = Literal["runs", "rewritten", "cache", "inside", "given", "derived"]
"""The storage of a table's rows.

- ``runs``: append-only. Every run adds a file to its partition.
- ``rewritten``: one file per partition, which every run replaces.
- ``cache``: the parts of the cache of token statistics.
- ``inside``: a file in the folder of another table.
- ``given``: only in the warehouse. The build inserts the rows from the ledger, JSON documents and the configuration.
- ``derived``: only in the warehouse. The build computes the rows from other tables (sql/fills/).
"""

Order = Literal["sorted", "as read", "any"]
"""The order in which the warehouse loads the rows of a run's files.

- ``sorted``: by file and row.
- ``as read``: in reading order, for tables that would take gigabytes of memory to sort. The order must be fixed,
  because the last digit of a sum of scores depends on it.
- ``any``: any order, for tables whose numbers are never summed. This takes a quarter less time.
"""


@dataclass(frozen=True)
class Column:
    """A column of a Parquet file, of a table in the warehouse, or of both.

    Attributes:
        name: The name in the file.
        type: The Arrow type.
        description: The comment of the column, in files, in the warehouse and in the UI.
        null: True if values may be null.
        ge: The minimum of the values (greater or equal). Every write checks the limits.
        le: The maximum of the values (less or equal).
        one_of: The allowed values. Empty if all values are allowed.
        file_only: True if the column is in the Parquet file only, and not in the warehouse.
        stored_as: The name in the warehouse, or empty if it equals ``name``.
        sql: For columns that only the warehouse has: the SQL expression that computes the values from the columns of
            the file.
        sql_type: The type in the warehouse, if no Arrow type corresponds to it.
        quotes_text: True if the column quotes audited texts. The column is then empty in a warehouse without text.
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
        """Return a copy with another description or other attributes, for use in another table."""
        return replace(self, description=description or self.description, **fields)

    @property
    def warehouse_name(self) -> str:
        """Return the name in the warehouse."""
        return self.stored_as or self.name

    @property
    def has_limits(self) -> bool:
        """Return True if the declaration limits the values (``ge``, ``le`` or ``one_of``)."""
        return self.ge is not None or self.le is not None or bool(self.one_of)

    def find_fault(self, values: pa.ChunkedArray) -> str | None:
        """Return a message about a value outside the limits of the column, or None if all values are within them."""
        if self.ge is not None and pc.any(pc.less(values, self.ge)).as_py():
            return f"column {self.name} has the value {pc.min(values).as_py()}, but the minimum is {self.ge:g}"
        if self.le is not None and pc.any(pc.greater(values, self.le)).as_py():
            return f"column {self.name} has the value {pc.max(values).as_py()}, but the maximum is {self.le:g}"
        if self.one_of:
            others = set(pc.unique(values).to_pylist()) - {*self.one_of, None}
            if others:
                allowed = ", ".join(self.one_of)
                return f"column {self.name} has the value {sorted(others)[0]!r}, but the allowed values are {allowed}"
        return None


class ColumnType:
    """A factory of columns with the same type."""

    def __init__(self, type_: pa.DataType, **fields: Any) -> None:
        self._type = type_
        self._fields = fields

    def __call__(self, name: str, description: str, **fields: Any) -> Column:
        """Declare a column.

        Args:
            name: The name of the column.
            description: The description of the column.
            fields: Other attributes of :class:`Column`.
        """
        return Column(name, self._type, description, **{**self._fields, **fields})


def list_type_of(type_: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a list with elements of this type. The elements cannot be null."""
    return pa.list_(pa.field("item", type_, nullable=False))


string = ColumnType(pa.string())
boolean = ColumnType(pa.bool_())
day = ColumnType(pa.date32())
int8 = ColumnType(pa.int8())
int32 = ColumnType(pa.int32())
int64 = ColumnType(pa.int64())
count = ColumnType(pa.int32(), ge=0)
double = ColumnType(pa.float64())
fraction = ColumnType(pa.float64(), ge=0, le=1)
moment = ColumnType(pa.timestamp("us", tz="UTC"))
strings = ColumnType(list_type_of(pa.string()))
int64s = ColumnType(list_type_of(pa.int64()))


def choice(name: str, values: tuple[str, ...], meaning: str = "") -> Column:
    """Declare a text column with a fixed set of values. Its description lists the values, followed by ``meaning``."""
    description = " | ".join(values)
    if meaning:
        description += f": {meaning}"
    return Column(name, pa.string(), description, one_of=values)


@dataclass(frozen=True, eq=False)
class Table:
    """The declaration of a table of the pipeline.

    Attributes:
        name: The name of the table.
        comment: The description of the table in one sentence.
        columns: The columns.
        key: The columns whose values are unique per row of the warehouse's table.
        partitioned_by: The unit of a partition.
        storage: The place and form in which the rows are stored.
        made_from: The names of the tables that the rows are computed from.
        text_columns: The columns whose concatenation is the text that a model reads. The digest of this text is part of
            cache keys.
        current: The description of the rows in the view current_NAME and the macro NAME_as_of. It is empty if the
            latest run does not have all current rows. The table then has a different view or no view.
        order: The order of the rows in the warehouse.
        in_warehouse: True if the warehouse has the table.
        file: A function that returns the path of a partition's file, or None for the default path.
        manifest: A function that returns the path of the JSON document next to a partition's file, or None if there is
            no such document.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    partitioned_by: PartitionedBy = "none"
    storage: Storage = "derived"
    made_from: tuple[str, ...] = ()
    text_columns: tuple[str, ...] = ()
    current: str = ""
    order: Order = "sorted"
    in_warehouse: bool = True
    file: Callable[[DataPaths, str], Path] | None = None
    manifest: Callable[[DataPaths, str], Path] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the schema of the Parquet files, with descriptions."""
        return pa.schema(
            pa.field(column.name, column.type, nullable=column.null, metadata={"description": column.description})
            for column in self.columns
            if not column.sql
        )

    @property
    def names(self) -> list[str]:
        """Return the names of the file columns."""
        return list(self.schema.names)

    def field(self, name: str) -> pa.Field:
        """Return the Arrow field of a file column, for use in another schema."""
        return self.schema.field(name)

    def empty_table(self) -> pa.Table:
        """Return an Arrow table without rows."""
        return self.schema.empty_table()

    def column(self, name: str) -> Column:
        """Return the declaration of a column, for another table that has the same column.

        Raises:
            KeyError: If the table has no column with this name.
        """
        return {column.name: column for column in self.columns}[name]

    @property
    def stored(self) -> tuple[Column, ...]:
        """Return the columns that the warehouse stores."""
        return tuple(column for column in self.columns if not column.file_only)

    @property
    def append_only(self) -> bool:
        """Return True if every run adds a file to its partition, and False if a run replaces the file."""
        return self.storage == "runs"

    @property
    def has_files(self) -> bool:
        """Return True if every partition has its own Parquet files."""
        return self.storage in ("runs", "rewritten") and bool(self.columns)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Return the columns that have one value per file: the partition's columns, and run_id if runs add files."""
        if self.storage == "cache":
            return ("model_fingerprint",)
        columns = _PARTITION_COLUMNS.get(self.partitioned_by, (self.partitioned_by,))
        return (*columns, "run_id") if self.append_only else columns

    def texts(self, rows: pa.Table) -> list[str]:
        """Return the concatenation of the columns ``text_columns`` for each row. Null counts as an empty text."""
        columns = [rows.column(name).to_pylist() for name in self.text_columns]
        texts: list[str] = []
        for parts in zip(*columns, strict=True):
            texts.append("".join(part or "" for part in parts))
        return texts

    def without_text(self) -> Table:
        """Return a copy of the declaration that leaves the columns that quote audited texts empty."""
        columns: list[Column] = []
        for column in self.columns:
            if column.quotes_text:
                empty_value = "NULL" if column.null else "[]"
                columns.append(replace(column, sql=empty_value))
            else:
                columns.append(column)
        return replace(self, columns=tuple(columns))

    def file_of(self, paths: DataPaths, partition: str, run_id: str = "") -> Path | None:
        """Return the path of a partition's file, or None if partitions have no files.

        Args:
            paths: The data folder.
            partition: The name of the partition.
            run_id: The id of the run, if every run adds a file.
        """
        if self.file is not None:
            return self.file(paths, partition)
        if self.storage == "runs":
            return paths.run_file(self.name, partition, run_id)
        if self.storage == "rewritten":
            return paths.rewritten_file(self.name, self.partitioned_by, partition)
        return None


def description_of(field: pa.Field) -> str:
    """Return the description in an Arrow field."""
    return str((field.metadata or {}).get(b"description", b"").decode())
