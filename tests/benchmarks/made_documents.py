"""Documents and specs made up by the tests: every word says where it stands, so windows can be traced back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.builders.labelled import LabelledSettings
from audit_pipeline.benchmarks.builders.online import OnlineSettings
from audit_pipeline.benchmarks.builders.shelf import ShelfSettings
from audit_pipeline.benchmarks.builders.sides import SidesSettings
from audit_pipeline.benchmarks.builders.templated import TemplatedSettings
from audit_pipeline.benchmarks.builders.temporal import TemporalSettings
from audit_pipeline.benchmarks.settings import BenchmarkSpec
from audit_pipeline.catalogue.contracts import DOCUMENTS, text_sha256
from audit_pipeline.catalogue.files import table_from_rows

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
    earliest: date | None = None,
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
        "date_kind": "release",
        "earliest": earliest,
        "places": None,
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


_ROWS = {
    "description": "made up",
    "path": "/nowhere",
    "calibration_fraction": 0,
    "seed": 5,
}


def sides_spec(words: int | None = None, family: str = "two", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        **_ROWS,
        "builder": "sides",
        "words": "any" if words is None else [words],
        "members": {"files": ["train/rows.jsonl"]},
        "nonmembers": {"files": ["test/rows.jsonl"]},
        "design": "selected",
        **changes,
    }
    return BenchmarkSpec(family, words, SidesSettings.model_validate(fields))


def templated_spec(family: str = "items", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        **_ROWS,
        "builder": "templated",
        "words": "any",
        "split": "test",
        "template": "Question: {{ question }}\nAnswer: {{ answer }}",
        **changes,
    }
    return BenchmarkSpec(family, None, TemplatedSettings.model_validate(fields))


def shelf_spec(words: Any = 10, family: str = "shelf", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        "builder": "shelf",
        "description": "made up",
        "sources": ["made"],
        "words": words if words == "any" else [words],
        "windows_per_document": 3,
        "seed": 5,
        **changes,
    }
    return BenchmarkSpec(family, words, ShelfSettings.model_validate(fields))


def online_spec(words: Any = 4, family: str = "online", **changes: Any) -> BenchmarkSpec:
    fields: dict[str, Any] = {
        **_ROWS,
        "builder": "online",
        "words": words if words == "any" else [words],
        "split": "Rows_length{words}",
        "lengths": [4, 8],
        "design": "temporal",
        **changes,
    }
    return BenchmarkSpec(family, words, OnlineSettings.model_validate(fields))


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """``rows`` as the lines of a .jsonl file, or of a .jsonl.gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
