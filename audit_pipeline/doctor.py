"""The command `corpus-audit doctor`: is this installation fit to audit, and is what it has kept intact?

What belongs here: looking, and saying in one line what is wrong and what to do. What does not: repairing.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from audit_pipeline.errors import AuditError
from audit_pipeline.lineage import package_versions
from audit_pipeline.models.config import ModelEntry, load_models
from audit_pipeline.models.load import default_device, load_tokenizer
from audit_pipeline.paths import DataPaths
from audit_pipeline.warehouse.query import open_read_only

_LOW_DISK_BYTES = 2 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    ok: bool
    words: str


def examine(paths: DataPaths) -> list[Finding]:
    """Everything that is looked at, in order; hub models are not fetched for it."""
    return [*_installation(), *_data_folder(paths), *_models(paths), *_parts(paths), _warehouse(paths)]


def _installation() -> Iterator[Finding]:
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    versions = ", ".join(f"{name} {version}" for name, version in package_versions().items())
    yield Finding("packages", ok=True, words=versions)
    yield Finding("device", ok=True, words=default_device())


def _data_folder(paths: DataPaths) -> Iterator[Finding]:
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=paths.root):
            pass
    except OSError as error:
        yield Finding("data folder", ok=False, words=f"{paths.root} cannot be written: {error}; set CORPUS_AUDIT_DATA")
        return
    yield Finding("data folder", ok=True, words=str(paths.root))
    free = shutil.disk_usage(paths.root).free
    yield Finding("free disk", free >= _LOW_DISK_BYTES, f"{free / 1e9:.1f} GB")


def _models(paths: DataPaths) -> Iterator[Finding]:
    try:
        entries = load_models()
    except AuditError as error:
        yield Finding("config/models.yaml", ok=False, words=str(error))
        return
    for entry in entries.values():
        yield _model(entry, paths)


def _model(entry: ModelEntry, paths: DataPaths) -> Finding:
    what = f"model {entry.name}"
    if entry.hub is not None:
        return Finding(what, ok=True, words=f"on the hub as {entry.hub}; fetched when it is first used")
    try:
        model = load_tokenizer(entry, paths)
    except AuditError as error:
        return Finding(what, ok=False, words=str(error))
    words = f"{model.located.resolved_from}, fingerprint {model.identity.model_fingerprint}"
    return Finding(what, ok=True, words=words)


def _parts(paths: DataPaths) -> Iterator[Finding]:
    folder = paths.table("token_statistics")
    parts = sorted(folder.rglob("part-*.parquet"))
    damaged = [path for path in parts if not _readable(path)]
    aside = sorted(folder.rglob("part-*.unreadable"))
    yield Finding("cache", not damaged, f"{len(parts)} part files" if not damaged else f"damaged: {damaged[0]}")
    if aside:
        words = f"{len(aside)} damaged part file(s), the first {aside[0]}: their texts are run again; delete them"
        yield Finding("set aside", ok=False, words=words)


def _readable(path: object) -> bool:
    try:
        pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError):
        return False
    return True


def _warehouse(paths: DataPaths) -> Finding:
    if not paths.warehouse.exists():
        return Finding("warehouse", ok=True, words="not built yet; the first audit builds it")
    try:
        with open_read_only(paths.warehouse) as connection:
            (count,) = connection.execute("SELECT count(*) FROM evaluations").fetchone() or (0,)
    except AuditError as error:
        return Finding("warehouse", ok=False, words=str(error))
    except duckdb.Error as error:
        words = f"{paths.warehouse}: {' '.join(str(error).split())}; build it again: corpus-audit report"
        return Finding("warehouse", ok=False, words=words)
    return Finding("warehouse", ok=True, words=f"{paths.warehouse}, {count} evaluations")
