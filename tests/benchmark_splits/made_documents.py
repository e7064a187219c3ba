"""Documents and specs made up by the tests: every word says where it stands, so windows can be traced back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.config import BenchmarkSpec, LabelledSettings, TemporalSettings
from audit_pipeline.contracts import DOCUMENTS, text_sha256
from audit_pipeline.tables import table_from_rows

OLD, BETWEEN, NEW = date(2020, 5, 1), date(2023, 5, 1), date(2025, 5, 1)


def words_of(name: str, count: int) -> str:
    """``count`` different words: name0 name1 name2 ..."""
    return " ".join(f"{name}{place}" for place in range(count))


def document(
    name: str,
    published: date | None,
    words: int = 100,
    *,
    text: str | None = None,
    collection: str = "project",
    group: str | None = None,
    language: str = "en",
) -> dict[str, Any]:
    """One row of the documents table."""
    identity = f"made:{collection}:{name}"
    text = words_of(name, words) if text is None else text
    return {
        "document_id": identity,
        "source": "made",
        "collection": collection,
        "group": group or identity,
        "title": name,
        "text": text,
        "published": published,
        "retrieved_at": datetime(2026, 1, 1, tzinfo=UTC),
        "language": language,
        "licence": "CC0-1.0",
        "url": f"made/{name}",
        "sha256": text_sha256(text),
        "run_id": "harvest",
    }


def documents_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return table_from_rows(rows, DOCUMENTS)


def temporal_spec(words: int = 10, family: str = "made", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        "builder": "temporal",
        "description": "made up",
        "sources": ["made"],
        "member_before": date(2022, 1, 1),
        "nonmember_from": date(2025, 1, 1),
        "words": [words],
        "windows_per_document": 3,
        "calibration_fraction": 0,
        "seed": 5,
        **changes,
    }
    return BenchmarkSpec(family, words, TemporalSettings.model_validate(fields))


def labelled_spec(words: int = 32, family: str = "rows", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        "builder": "labelled",
        "description": "made up",
        "path": "/nowhere",
        "split": "Rows_length{words}",
        "words": [words],
        "design": "temporal",
        "calibration_fraction": 0,
        "seed": 5,
        **changes,
    }
    return BenchmarkSpec(family, words, LabelledSettings.model_validate(fields))
