"""Which version of a control its entry and its documents give now, and which one is trained."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from audit_pipeline.errors import DataError
from audit_pipeline.extras.controls.config import ControlEntry
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version, read_documents, read_documents_version
from audit_pipeline.tables import digest

VERSION = 1


def compute_control_version(entry: ControlEntry, source_versions: Mapping[str, str]) -> str:
    """sha256 (16 hex digits) of all that decides texts and weights: settings, documents, this code's version.

    The weights follow from it on one machine and version of torch; another may round otherwise, and the manifest says
    which it was.
    """
    return digest(VERSION, entry.settings_digest, dict(source_versions))[:16]


def read_control_documents(entry: ControlEntry, paths: DataPaths) -> tuple[pa.Table, Mapping[str, str]]:
    """The documents that a control is drawn from, and their versions; DataError where they have not been fetched."""
    tables = {source: read_documents(paths, source) for source in entry.sources}
    return pa.concat_tables(tables.values()), {name: compute_documents_version(table) for name, table in tables.items()}


def compute_wanted_version(entry: ControlEntry, paths: DataPaths) -> str | None:
    """Return the version that the control would be trained in now; None where its documents are not there."""
    try:
        return compute_control_version(
            entry, {source: read_documents_version(paths, source) for source in entry.sources}
        )
    except DataError:
        return None
