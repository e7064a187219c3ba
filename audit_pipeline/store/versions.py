"""Versions of installed packages, of this package's code, and of a table's content."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterator, Mapping
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
_CODE_SUFFIXES = {".py", ".sql", ".j2", ".css", ".js"}
_ROWS_AT_ONCE = 4096


@functools.cache
def package_versions() -> Mapping[str, str]:
    """Return the installed versions of the packages that can change a number. They are read once per process."""
    return MappingProxyType({name: importlib.metadata.version(name) for name in _PACKAGES})


def code_digest() -> str:
    """Return a digest of the current files of this package."""
    files = [path for path in _PACKAGE.rglob("*") if path.suffix in _CODE_SUFFIXES]
    return digest_of_files(_PACKAGE, sorted(files))


def table_version(table: pa.Table) -> str:
    """Return a digest of a table's content that does not depend on the row order and the column ``run_id``."""
    content = table.select([name for name in table.column_names if name != "run_id"])
    batches = content.to_batches(_ROWS_AT_ONCE)
    rows = pa.chunked_array(map(_rows_to_canonical_json, batches), pa.large_string()).combine_chunks()
    return digest_of_items(_iterate_sorted(rows))[:16]


def _iterate_sorted(rows: pa.Array) -> Iterator[str]:
    """Yield the rows in sorted order. Only a part of them is converted to Python strings at a time."""
    order = pc.sort_indices(rows)
    for start in range(0, len(order), _ROWS_AT_ONCE):
        yield from rows.take(order.slice(start, _ROWS_AT_ONCE)).to_pylist()


def _rows_to_canonical_json(batch: pa.RecordBatch) -> pa.Array:
    """Convert each row to canonical JSON, a list of its values."""
    opening = pa.scalar("[", pa.large_string())
    closing = pa.scalar("]", pa.large_string())
    values = pc.binary_join_element_wise(
        *map(_values_to_canonical_json, batch.columns), pa.scalar(",", pa.large_string())
    )
    return pc.binary_join_element_wise(opening, values, closing, pa.scalar("", pa.large_string()))


def _values_to_canonical_json(column: pa.Array) -> pa.Array:
    """Convert each value to canonical JSON. Repeated texts and dates are converted once."""
    if pa.types.is_nested(column.type):
        return pa.array([canonical_json(_to_json_value(value)) for value in column.to_pylist()], pa.large_string())
    is_number = pa.types.is_floating(column.type) or pa.types.is_integer(column.type)
    if is_number or pa.types.is_boolean(column.type):
        return pa.array(each_to_canonical_json(column.to_pylist()), pa.large_string())
    distinct = column.dictionary_encode(null_encoding="encode")
    values = map(_to_json_value, distinct.dictionary.to_pylist())
    return pa.array(each_to_canonical_json(values), pa.large_string()).take(distinct.indices)


def _to_json_value(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return [_to_json_value(item) for item in value]
    return str(value)
