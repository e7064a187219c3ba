"""What is handed on of a benchmark: its rows, where their texts come from, and whether the licences let that be.

What belongs here: from the examples of a built benchmark to the rows, their columns and what those mean; sources,
licences and days, document by document, from the benchmark's manifest, and from the documents where they are still
those that it was built from; reading one licence as sources spell it, and what the hub calls it. What does not: putting
any of it into words (descriptions.py), writing it and what is done where a licence is unclear (export.py).

This is no legal advice: a licence that is not plainly free counts as unclear, and the user has to say that they
may hand the texts on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, to_export_names
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.store import read_documents, read_documents_version
from audit_pipeline.errors import DataError

# Of a licence that says several things, each: "MIT (package); public domain text".
_SEVERAL = re.compile(r"\s*(?:;|\bAND\b)\s*")
_REMARK = re.compile(r"\s*\([^()]*\)\s*$")
_FREE = re.compile(
    r"""
    CC0(?:[ -]1\.0)? | CC[ -]BY(?:[ -]SA)?(?:[ -][1-4]\.[05])? | PDDL(?:-1\.0)? | ODC-BY(?:-1\.0)? | ODbL(?:-1\.0)?
    | MIT(?:-0)? | BSD(?:-[0234]-Clause)? | Apache-2\.0 | ISC | PSF-2\.0 | Python-2\.0 | Unlicense
    | public\ domain(?:\ text)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
# What the hub lists: https://huggingface.co/docs/hub/repositories-licenses
_ON_THE_HUB = frozenset(
    """
    apache-2.0 mit cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 odc-by odbl pddl unlicense
    bsd bsd-2-clause bsd-3-clause isc
    """.split()  # noqa: SIM905 - a list of words is read best as words
)
OTHER = "other"


def allows_redistribution(licence: str) -> bool:
    """Whether everybody may hand on texts under ``licence``, under conditions that the licence names itself.

    False also if that is not certain: an unknown licence, one that allows it to some people (non-commercial) or in some
    places (public domain in one country), or one that forbids changed texts, such as windows.
    """
    return all(_FREE.fullmatch(_REMARK.sub("", part).strip()) for part in _SEVERAL.split(licence.strip()))


def list_unclear_licences(licences: Iterable[str]) -> list[str]:
    """Those of ``licences`` that do not plainly allow handing on, each once, in order."""
    return [licence for licence in dict.fromkeys(licences) if not allows_redistribution(licence)]


def to_hub_licences(licences: Iterable[str]) -> list[str]:
    """What the hub calls these licences, each once, in order; ``other`` where it has no name for one of them."""
    return list(dict.fromkeys(_to_hub_licence(licence) for licence in licences))


def _to_hub_licence(licence: str) -> str:
    name = re.sub(r"\s+", "-", licence.strip().lower())
    return name if name in _ON_THE_HUB else OTHER


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


def origins_of(benchmark: BuiltBenchmark) -> tuple[Origin, ...]:
    """Every source or place that the benchmark was built from, in order."""
    return tuple(_build_origin(dict(provenance), benchmark) for provenance in benchmark.manifest["provenance"])


def read_attributions(benchmark: BuiltBenchmark, paths: DataPaths) -> dict[str, Attribution]:
    """What is known of its documents, by document_id: of sources whose documents are still those it was built from."""
    found: dict[str, Attribution] = {}
    for source, version in benchmark.manifest["source_versions"].items():
        if source not in benchmark.spec.get("sources", ()) or not _is_version_in_store(source, version, paths):
            continue
        columns = read_documents(paths, source).select(["document_id", "title", "url", "licence"])
        found |= {row.pop("document_id"): Attribution(**row) for row in columns.to_pylist()}
    return found


def _is_version_in_store(source: str, version: str, paths: DataPaths) -> bool:
    try:
        return read_documents_version(paths, source) == version
    except DataError:
        # Removed, or not readable: the benchmark alone remains.
        return False


def _build_origin(entry: Mapping[str, Any], benchmark: BuiltBenchmark) -> Origin:
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
        # Rows of a file: its path stays private, its digest identifies the content.
        named, state = "rows of a file", ", ".join(f"sha256 {digest}" for digest in entry.get("files", {}).values())
    licence = entry.get("licence") or NOT_STATED
    return Origin(str(named), str(state), {licence: None}, str(entry.get("kind of date", "")), "")


@dataclass(frozen=True)
class HandedOnColumn:
    """A column of the rows that are handed on."""

    name: str
    type: pa.DataType
    meaning: str


COLUMNS = (
    HandedOnColumn("text", pa.string(), "the text that is audited"),
    HandedOnColumn(
        "context", pa.string(), "text that stands before it, which a model reads and no detector scores; null: none"
    ),
    HandedOnColumn("label", pa.int8(), "1 member, 0 non-member, null unknown"),
    HandedOnColumn("split", pa.string(), "calibration or evaluation; the texts of a group are all in one"),
    HandedOnColumn("document_id", pa.string(), "the document that the text was taken from"),
    HandedOnColumn(
        "group", pa.string(), "the book, patent, article or release: texts of one group are not independent"
    ),
    HandedOnColumn("collection", pa.string(), "the project, series or folder"),
    HandedOnColumn("published", pa.date32(), "the document's date; null where it has none"),
    HandedOnColumn("language", pa.string(), "ISO 639-1"),
    HandedOnColumn("words", pa.int32(), "the text's length in words"),
    HandedOnColumn("title", pa.string(), "the document's title; null where it is not known"),
    HandedOnColumn("url", pa.string(), "where the document came from; null where it is not known"),
    HandedOnColumn("licence", pa.string(), "the document's licence; null where the card says it of all"),
)
_OF_DOCUMENTS = ("title", "url", "licence")
SCHEMA = pa.schema([(column.name, column.type) for column in COLUMNS])


def build_export_rows(benchmark: BuiltBenchmark, documents: Mapping[str, Attribution]) -> pa.Table:
    """The examples of ``benchmark`` with COLUMNS, in their order; ``documents`` is what is known of them."""
    examples, family = benchmark.examples, str(benchmark.manifest["family"])
    ids = examples.column("document_id").to_pylist()
    columns = {
        **{name: examples.column(name) for name in SCHEMA.names if name in examples.column_names},
        **{name: to_export_names(examples.column(name).to_pylist(), family) for name in ("document_id", "group")},
        **{name: [getattr(documents.get(document_id), name, None) for document_id in ids] for name in _OF_DOCUMENTS},
    }
    return pa.table({field.name: pa.array(_to_list(columns[field.name]), field.type) for field in SCHEMA}, SCHEMA)


def group_rows_by_split(rows: pa.Table) -> dict[str, pa.Table]:
    """The rows of each split, in their order."""
    names = sorted(set(rows.column("split").to_pylist()))
    return {name: rows.filter(pc.equal(rows.column("split"), name)) for name in names}


def _to_list(column: pa.ChunkedArray | list[str | None]) -> list[object]:
    return column.to_pylist() if isinstance(column, pa.ChunkedArray) else list(column)
