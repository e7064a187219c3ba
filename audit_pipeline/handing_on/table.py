"""The rows that are handed on: which columns they have, and what those mean.

What belongs here: from the examples of a built benchmark to these rows. What does not: writing them (export.py), and
reading them back (entry.py says how).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built import BuiltBenchmark
from audit_pipeline.benchmarks.content import to_export_names
from audit_pipeline.handing_on.origins import Attribution


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


def build_export_rows(built: BuiltBenchmark, documents: Mapping[str, Attribution]) -> pa.Table:
    """The examples of ``built`` with COLUMNS, in their order; ``documents`` is what is known of them."""
    examples, family = built.examples, str(built.manifest["family"])
    ids = examples.column("document_id").to_pylist()
    columns = {
        **{name: examples.column(name) for name in SCHEMA.names if name in examples.column_names},
        **{name: to_export_names(examples.column(name).to_pylist(), family) for name in ("document_id", "group")},
        **{name: [getattr(documents.get(one), name, None) for one in ids] for name in _OF_DOCUMENTS},
    }
    return pa.table({field.name: pa.array(_values(columns[field.name]), field.type) for field in SCHEMA}, SCHEMA)


def by_split(rows: pa.Table) -> dict[str, pa.Table]:
    """The rows of each split that there is, in their order."""
    names = sorted(set(rows.column("split").to_pylist()))
    return {name: rows.filter(pc.equal(rows.column("split"), name)) for name in names}


def _values(column: pa.ChunkedArray | list[str | None]) -> list[object]:
    return column.to_pylist() if isinstance(column, pa.ChunkedArray) else list(column)
