"""Lines of a ledger for tests: appended with fixed times, changed, and updated to the current files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from audit_pipeline.store import store
from audit_pipeline.store.files import read_parquet
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.ledger import LineageStep, read_ledger
from audit_pipeline.store.ledger_records import START, format_line, parse_lines
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import DOCUMENTS, TABLES, Table
from audit_pipeline.warehouse.non_parquet_rows import build_lineage_row

Fields = Mapping[str, Any]


def write_explained(paths: DataPaths, table: Table, partition: str, rows: pa.Table) -> None:
    """Write the rows of a partition and their line."""
    version = store.compute_documents_version(rows) if table is DOCUMENTS else None
    store.write(paths, step_of("run"), table, partition, rows, data_version=version, upstream={})


def step_of(run_id: str) -> LineageStep:
    """Return the step of a run that fetches documents."""
    return LineageStep.now(run_id, "documents", "1")


def read_fields(paths: DataPaths) -> list[dict[str, Any]]:
    """Return the fields of every line."""
    content = paths.ledger_file.read_bytes() if paths.ledger_file.exists() else b""
    return [dict(line.fields or {}) for line in parse_lines(content)]


def append_line(paths: DataPaths, fields: Fields) -> None:
    """Append a line with these fields. Times are datetimes."""
    paths.ledger.mkdir(parents=True, exist_ok=True)
    with paths.ledger_file.open("ab") as file:
        file.write(_format(read_ledger(paths).head, fields))


def rewrite_lines(paths: DataPaths, change: Callable[[dict[str, Any]], Fields | None]) -> None:
    """Replace the fields of each line by the result of ``change``. None removes the line."""
    previous, content = START, b""
    for fields in map(change, read_fields(paths)):
        if fields is not None:
            line = _format(previous, fields)
            previous, content = parse_lines(line)[0].digest, content + line
    paths.ledger.mkdir(parents=True, exist_ok=True)
    # Another inode, so that readers notice the change.
    rewritten = paths.ledger / "rewritten"
    rewritten.write_bytes(content)
    rewritten.replace(paths.ledger_file)


def explain_files(paths: DataPaths) -> None:
    """Set digest and number of rows of every entry to those of its current file."""
    rewrite_lines(paths, lambda fields: {**fields, **describe_file(paths, fields)})


def describe_file(paths: DataPaths, fields: Fields) -> Fields:
    """Return digest and number of rows of the file that a line explains, or nothing if the file is missing."""
    table = TABLES[fields["table"]]
    file = table.file_of(paths, fields["partition"], fields["run_id"]) if table.has_files else None
    if file is None or not file.exists():
        return {}
    return {"file_sha256": file_sha256(file), "rows": read_parquet(file, []).num_rows}


def _format(previous: str, fields: Fields) -> bytes:
    known = {name: value for name, value in fields.items() if value is not None}
    if isinstance(known.get("settings"), str):
        known["settings"] = json.loads(known["settings"])
    return format_line(previous, known)


def lineage_rows(paths: DataPaths) -> list[dict[str, Any]]:
    """Return the entries of a ledger as rows of the warehouse."""
    return [dict(build_lineage_row(entry)) for entry in read_ledger(paths).entries]
