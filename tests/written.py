"""Whole tables, read from all their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from audit_pipeline.store.files import Columns, read_table


def read_all(folder: Path, columns: Columns) -> pa.Table:
    """Return the rows of all Parquet files below a folder, in path order."""
    tables = [read_table(path, columns, label=path.name) for path in sorted(folder.rglob("*.parquet"))]
    return pa.concat_tables(tables) if tables else columns.empty_table()
