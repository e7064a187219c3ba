"""Documents and specs made up by the tests: every word says where it stands, so windows can be traced back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from made_rows import make_row

from audit_pipeline.benchmarks.builders.labelled import LabelledSettings, SidesSettings
from audit_pipeline.benchmarks.builders.online import OnlineSettings
from audit_pipeline.benchmarks.builders.shelf import ShelfSettings
from audit_pipeline.benchmarks.builders.templated import TemplatedSettings
from audit_pipeline.benchmarks.builders.temporal import TemporalSettings
from audit_pipeline.benchmarks.settings import BenchmarkSpec, FamilySettings
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import DOCUMENTS, text_sha256

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
    return make_row(
        DOCUMENTS,
        **{"document_id": identity, "source": "made", "collection": collection, "group": group or identity},
        **{"title": name, "text": text, "sha256": text_sha256(text), "language": language, "run_id": "harvest"},
        **{"published": published, "earliest": earliest, "date_kind": "release"},
        **{"retrieved_at": datetime(2026, 1, 1, tzinfo=UTC), "licence": "CC0-1.0", "url": f"made/{name}"},
    )


def documents_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return table_from_rows(rows, DOCUMENTS)


_DEFAULTS: dict[type[FamilySettings], dict[str, Any]] = {
    TemporalSettings: {
        "sources": ["made"],
        "member_before": date(2022, 1, 1),
        "nonmember_from": date(2025, 1, 1),
        "windows_per_document": 3,
        "calibration_fraction": 0,
    },
    ShelfSettings: {"sources": ["made"], "windows_per_document": 3},
    LabelledSettings: {
        "path": "/nowhere",
        "split": "Rows_length{words}",
        "design": "temporal",
        "calibration_fraction": 0,
    },
    SidesSettings: {
        "path": "/nowhere",
        "members": {"files": ["train/rows.jsonl"]},
        "nonmembers": {"files": ["test/rows.jsonl"]},
        "design": "selected",
        "calibration_fraction": 0,
    },
    TemplatedSettings: {
        "path": "/nowhere",
        "split": "test",
        "template": "Question: {{ question }}\nAnswer: {{ answer }}",
        "calibration_fraction": 0,
    },
    OnlineSettings: {
        "path": "/nowhere",
        "split": "Rows_length{words}",
        "lengths": [4, 8],
        "design": "temporal",
        "calibration_fraction": 0,
    },
}


def _spec(settings: type[FamilySettings], family: str, words: Any, changes: Mapping[str, Any]) -> BenchmarkSpec:
    (builder,) = get_args(settings.model_fields["builder"].annotation)
    fields = {
        "builder": builder,
        "description": "made up",
        "words": "any" if words in (None, "any") else [words],
        "seed": 5,
        **_DEFAULTS[settings],
        **changes,
    }
    return BenchmarkSpec(family, words, settings.model_validate(fields))


def temporal_spec(words: int = 10, family: str = "made", **changes: Any) -> BenchmarkSpec:
    return _spec(TemporalSettings, family, words, changes)


def labelled_spec(words: int = 32, family: str = "rows", **changes: Any) -> BenchmarkSpec:
    return _spec(LabelledSettings, family, words, changes)


def sides_spec(words: int | None = None, family: str = "two", **changes: Any) -> BenchmarkSpec:
    return _spec(SidesSettings, family, words, changes)


def templated_spec(family: str = "items", **changes: Any) -> BenchmarkSpec:
    return _spec(TemplatedSettings, family, None, changes)


def shelf_spec(words: Any = 10, family: str = "shelf", **changes: Any) -> BenchmarkSpec:
    return _spec(ShelfSettings, family, words, changes)


def online_spec(words: Any = 4, family: str = "online", **changes: Any) -> BenchmarkSpec:
    return _spec(OnlineSettings, family, words, changes)


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """``rows`` as the lines of a .jsonl file, or of a .jsonl.gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
