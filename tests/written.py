"""Reading back what was written, for tests that look at whole tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from audit_pipeline.store.files import Columns, read_table


def read_all(folder: Path, columns: Columns) -> pa.Table:
    """Every ``*.parquet`` below ``folder`` as one table, in path order; an empty table where there is none."""
    tables = [read_table(path, columns, label=path.name) for path in sorted(folder.rglob("*.parquet"))]
    return pa.concat_tables(tables) if tables else columns.empty_table()
