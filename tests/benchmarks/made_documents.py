"""Documents and benchmarks for tests. Each word of a document contains its position, so windows can be traced back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from functools import partial
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
    """Return different words: name0 name1 name2 ..."""
    return " ".join(f"{name}{place}" for place in range(count))


def document(name: str, published: date | None, words: int = 100, **columns: Any) -> dict[str, Any]:
    """Return a row of the documents table."""
    identity = f"made:{columns.get('collection', 'project')}:{name}"
    defaults = {
        **{"document_id": identity, "source": "made", "collection": "project", "title": name, "language": "en"},
        **{"text": words_of(name, words), "published": published, "earliest": None, "date_kind": "release"},
        **{"retrieved_at": datetime(2026, 1, 1, tzinfo=UTC), "licence": "CC0-1.0", "url": f"made/{name}"},
        **{"run_id": "harvest"},
    }
    row = {**defaults, **{column: value for column, value in columns.items() if value is not None}}
    return make_row(DOCUMENTS, **{"group": identity, **row, "sha256": text_sha256(row["text"])})


def documents_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return table_from_rows(rows, DOCUMENTS)


# The family, the length in words, and the required settings of a benchmark of each builder.
_DEFAULTS: dict[type[FamilySettings], tuple[str, int | None, dict[str, Any]]] = {
    TemporalSettings: (
        *("made", 10),
        {"sources": ["made"], "windows_per_document": 3, "member_before": "2022-01-01", "nonmember_from": "2025-01-01"},
    ),
    ShelfSettings: ("shelf", 10, {"sources": ["made"], "windows_per_document": 3}),
    LabelledSettings: ("rows", 32, {"path": "/nowhere", "split": "Rows_length{words}", "design": "temporal"}),
    SidesSettings: (
        *("two", None),
        {"path": "/nowhere", "members": {"split": "train"}, "nonmembers": {"split": "test"}, "design": "selected"},
    ),
    TemplatedSettings: (
        *("items", None),
        {"path": "/nowhere", "split": "test", "template": "Question: {{ question }}\nAnswer: {{ answer }}"},
    ),
    OnlineSettings: (
        *("online", 4),
        {"path": "/nowhere", "split": "Rows_length{words}", "lengths": [4, 8], "design": "temporal"},
    ),
}


def make_spec(
    kind: type[FamilySettings], words: Any = None, family: str | None = None, **changes: Any
) -> BenchmarkSpec:
    """Return a benchmark of a builder. Its settings have defaults."""
    default_family, default_words, required = _DEFAULTS[kind]
    words = words or default_words
    (builder,) = get_args(kind.model_fields["builder"].annotation)
    lengths = "any" if words in (None, "any") else [words]
    shared = {"builder": builder, "description": "made up", "words": lengths, "seed": 5, "calibration_fraction": 0}
    settings = kind.model_validate({**shared, **required, **changes})
    return BenchmarkSpec(family or default_family, words, settings)


temporal_spec = partial(make_spec, TemporalSettings)
shelf_spec = partial(make_spec, ShelfSettings)
labelled_spec = partial(make_spec, LabelledSettings)
sides_spec = partial(make_spec, SidesSettings)
templated_spec = partial(make_spec, TemplatedSettings)
online_spec = partial(make_spec, OnlineSettings)


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """Write values as the lines of a .jsonl or .jsonl.gz file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
