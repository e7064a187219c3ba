"""Builders of files of rows in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from made_spreadsheets import write_sheets
from pyarrow import feather

from audit_pipeline.readers.formats import find_suffix

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def written(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def delimited(rows: Sequence[Mapping[str, object]], delimiter: str = ",") -> str:
    """Return rows as CSV. Fields are quoted if necessary."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    return text.getvalue()


def write_rows(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Write rows in the format of the suffix. A .txt file contains only the texts."""
    suffix = find_suffix(path) or ""
    kind = suffix.removesuffix(".gz").removesuffix(".zst")
    if kind in (".parquet", ".arrow", ".feather"):
        table = pa.Table.from_pylist([dict(row) for row in rows])
        (pq.write_table if kind == ".parquet" else feather.write_feather)(table, path)
        return path
    if kind in (".xlsx", ".ods"):
        return write_sheets(path, {"rows": [list(rows[0]), *(list(row.values()) for row in rows)]})
    if kind == ".jsonl":
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    elif kind == ".json":
        content = json.dumps(rows, ensure_ascii=False, indent=1)
    elif kind == ".txt":
        content = "".join(f"{row['text']}\n" for row in rows)
    else:
        content = delimited(rows, _DELIMITERS[kind])
    codec = {".gz": "gzip", ".zst": "zstd"}.get(suffix.removeprefix(kind))
    path.write_bytes(pa.compress(content.encode(), codec, asbytes=True) if codec else content.encode())
    return path


def save_dataset(folder: Path, rows: Sequence[Mapping[str, object]], shards: int = 1) -> Path:
    """Save rows as `datasets` does."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    Dataset.from_list([dict(row) for row in rows]).save_to_disk(folder, num_shards=shards)
    return folder
