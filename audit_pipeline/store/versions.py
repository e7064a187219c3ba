"""Versions that numbers depend on: of the installed packages, of this package's own files, of a table's content."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.store.integrity import digest_of_files
from audit_pipeline.tables import canonical_json, digest_of_items, each_to_canonical_json

_PACKAGES = (
    "corpus-audit",
    "dagster",
    "datasets",
    "duckdb",
    "numpy",
    "pyarrow",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
)

_PACKAGE = Path(__file__).parents[1]
_OF_CODE = {".py", ".sql", ".j2", ".css", ".js"}
_ROWS_AT_ONCE = 4096


@functools.cache
def package_versions() -> Mapping[str, str]:
    """The installed versions of the packages that can change a number; read once a process."""
    return MappingProxyType({name: importlib.metadata.version(name) for name in _PACKAGES})


def code_digest() -> str:
    """A digest of this package's own files, as they lie there now."""
    return digest_of_files(_PACKAGE, sorted(path for path in _PACKAGE.rglob("*") if path.suffix in _OF_CODE))


def table_version(table: pa.Table) -> str:
    """A digest of a table's content; the order of rows and the column ``run_id`` do not matter."""
    whole = table.select([name for name in table.column_names if name != "run_id"])
    rows = pa.chunked_array(
        map(_rows_to_canonical_json, whole.to_batches(_ROWS_AT_ONCE)), pa.large_string()
    ).combine_chunks()
    order = pc.sort_indices(rows)
    pieces = (order.slice(start, _ROWS_AT_ONCE) for start in range(0, len(order), _ROWS_AT_ONCE))
    return digest_of_items(row for piece in pieces for row in rows.take(piece).to_pylist())[:16]


def _rows_to_canonical_json(batch: pa.RecordBatch) -> pa.Array:
    """Each row as canonical JSON: a list of its values."""
    opening, closing = (pa.scalar(bracket, pa.large_string()) for bracket in "[]")
    values = pc.binary_join_element_wise(
        *map(_values_to_canonical_json, batch.columns), pa.scalar(",", pa.large_string())
    )
    return pc.binary_join_element_wise(opening, values, closing, pa.scalar("", pa.large_string()))


def _values_to_canonical_json(column: pa.Array) -> pa.Array:
    """Each value as canonical JSON."""
    if pa.types.is_nested(column.type):
        return pa.array([canonical_json(_to_json_value(value)) for value in column.to_pylist()], pa.large_string())
    if any(is_kind(column.type) for is_kind in (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean)):
        return pa.array(each_to_canonical_json(column.to_pylist()), pa.large_string())
    distinct = column.dictionary_encode(null_encoding="encode")
    values = map(_to_json_value, distinct.dictionary.to_pylist())
    return pa.array(each_to_canonical_json(values), pa.large_string()).take(distinct.indices)


def _to_json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return [_to_json_value(item) for item in value] if isinstance(value, list) else str(value)
