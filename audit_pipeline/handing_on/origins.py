"""Where the texts of a built benchmark come from: its sources or rows, their licences and days, document by document.

What belongs here: reading that from the benchmark's manifest, and from the documents where they are still those that it
was built from. What does not: what a licence allows (licences.py), and putting it into words (card.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.catalogue.documents import read_documents, version_of_documents
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Origin:
    """A source of documents, or a place of rows, that a benchmark was built from.

    ``version`` says which state of it; ``licences`` counts its documents by licence (None: rows, which are not counted
    by licence); ``dates`` says what their days are the days of; ``retrieved`` when documents were fetched.
    """

    name: str
    version: str
    licences: Mapping[str, int | None]
    dates: str
    retrieved: str


@dataclass(frozen=True)
class Attribution:
    """What is known of one document: its title, address and licence."""

    title: str
    url: str
    licence: str


def origins_of(built: BuiltBenchmark) -> tuple[Origin, ...]:
    """Every source or place that the benchmark was built from, in order."""
    return tuple(_origin(dict(one), built) for one in built.manifest["provenance"])


def attributions(built: BuiltBenchmark, paths: DataPaths) -> dict[str, Attribution]:
    """What is known of its documents, by document_id: of sources whose documents are still those it was built from."""
    found: dict[str, Attribution] = {}
    for source, version in built.manifest["source_versions"].items():
        if source not in built.spec.get("sources", ()) or not _is_there(source, version, paths):
            continue
        columns = read_documents(paths, source).select(["document_id", "title", "url", "licence"])
        found |= {row.pop("document_id"): Attribution(**row) for row in columns.to_pylist()}
    return found


def _is_there(source: str, version: str, paths: DataPaths) -> bool:
    try:
        return version_of_documents(paths, source) == version
    except DataError:
        # Removed, or not readable: the benchmark is all that is left of it.
        return False


def _origin(entry: Mapping[str, Any], built: BuiltBenchmark) -> Origin:
    if "licences" in entry:
        days = entry["retrieved"]
        return Origin(
            name=entry["source"],
            version=entry["version"],
            licences=dict(entry["licences"]),
            dates=", ".join(entry["kinds of date"]),
            retrieved=" to ".join(dict.fromkeys(str(day) for day in (days["first"], days["last"]) if day)),
        )
    named = entry.get("hub") or entry.get("package")
    state = entry.get("commit") or entry.get("version") or ""
    if named is None:
        # Rows of a file: its place on somebody's disk is nobody else's business, what it held is its digest.
        named, state = "rows of a file", ", ".join(f"sha256 {digest}" for digest in entry.get("files", {}).values())
    licence = entry.get("licence") or NOT_STATED
    return Origin(str(named), str(state), {licence: None}, str(entry.get("kind of date", "")), "")
