"""Where every number comes from: one lineage row for each table, partition and run.

What belongs here: composing and writing lineage rows. What does not: deciding what is run (assets/), reading them back
(warehouse/).
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from audit_pipeline.contracts import LINEAGE, canonical_json, digest
from audit_pipeline.errors import DataError
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import read_columns, table_from_rows, write_table

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


def package_versions() -> dict[str, str]:
    """The installed versions of the packages that can change a number."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def table_version(table: pa.Table, *, without: tuple[str, ...] = ("run_id",)) -> str:
    """A digest of a table's content; the order of rows and the columns ``without`` do not matter."""
    columns = [name for name in table.column_names if name not in without]
    return digest(sorted(canonical_json([_plain(row[name]) for name in columns]) for row in table.to_pylist()))[:16]


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


@dataclass(frozen=True)
class Step:
    """What is known of a step when it starts."""

    run_id: str
    asset_key: str
    code_version: str
    started_at: datetime

    @classmethod
    def now(cls, run_id: str, asset_key: str, code_version: str) -> Step:
        return cls(run_id, asset_key, code_version, datetime.now(UTC))


def record(
    paths: DataPaths,
    step: Step,
    *,
    table: str,
    partition: str,
    data_version: str,
    upstream: Mapping[str, str],
    model_fingerprint: str | None = None,
    tokenizer_fingerprint: str | None = None,
    benchmark_digest: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write the lineage row of what ``step`` is about to move into place; ``settings``: the options it was asked with.

    Called before the rows themselves are moved into place: a run that dies between the two leaves an entry without
    rows, never rows without an entry.
    """
    row = {
        "table": table,
        "partition": partition,
        "run_id": step.run_id,
        "asset_key": step.asset_key,
        "code_version": step.code_version,
        "data_version": data_version,
        "upstream_data_versions": canonical_json(dict(upstream)),
        "model_fingerprint": model_fingerprint,
        "tokenizer_fingerprint": tokenizer_fingerprint,
        "benchmark_digest": benchmark_digest,
        "started_at": step.started_at,
        "finished_at": datetime.now(UTC),
        "package_versions": canonical_json(package_versions()),
        "settings": None if settings is None else canonical_json(dict(settings)),
    }
    write_table(paths.run_file("lineage", f"{table}:{partition}", step.run_id), table_from_rows([row], LINEAGE))


_LOOKED_AT = (
    "run_id",
    "code_version",
    "data_version",
    "benchmark_digest",
    "upstream_data_versions",
    "finished_at",
)


@dataclass(frozen=True)
class Written:
    """What the lineage says of the rows that were written last for a partition."""

    run_id: str
    code_version: str
    data_version: str
    benchmark_digest: str | None
    upstream: Mapping[str, str]
    finished_at: datetime


def latest_run(paths: DataPaths, table: str, partition: str) -> Written:
    """The run whose rows of ``table`` were written last for a partition; raises DataError where there are none."""
    folder = paths.run_file("lineage", f"{table}:{partition}", "any").parent
    entries = [
        entry
        for path in sorted(folder.glob("*.parquet"))
        for entry in read_columns(path, _LOOKED_AT, what=path.name).to_pylist()
    ]
    written = [entry for entry in entries if paths.run_file(table, partition, entry["run_id"]).exists()]
    if not written:
        raise DataError(f"there are no {table} of {partition} yet: run them first")
    last = max(written, key=lambda entry: (entry["finished_at"], entry["run_id"]))
    return Written(
        last["run_id"],
        last["code_version"],
        last["data_version"],
        last["benchmark_digest"],
        json.loads(last["upstream_data_versions"]),
        last["finished_at"],
    )
