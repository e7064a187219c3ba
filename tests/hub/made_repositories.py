"""Synthetic repositories with the files, columns and splits of those that config/ names."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from made_workspace import made_text

Rows = Sequence[Mapping[str, Any]]


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a saved model."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def parquet(rows: Rows, row_group: int = 50) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), buffer, row_group_size=row_group)
    return buffer.getvalue()


def jsonl(rows: Sequence[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def wikimia(*lengths: int) -> dict[str, bytes]:
    """Return files like those of swj0419/WikiMIA: one split and one Parquet file per length."""
    files = {
        f"data/WikiMIA_length{words}-00000-of-00001-0a1b2c3d4e5f.parquet": parquet(
            [{"input": made_text(f"w{words}-{row}", words), "label": row % 2} for row in range(12)]
        )
        for words in lengths
    }
    splits = "".join(f"  - split: WikiMIA_length{words}\n    path: data/WikiMIA_length{words}-*\n" for words in lengths)
    return {
        "README.md": f"---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n{splits}---\n".encode(),
        **files,
    }


def bookmia() -> dict[str, bytes]:
    """Return files like those of swj0419/BookMIA: one file of snippets with the name and the number of their book."""
    rows: list[dict[str, Any]] = []
    for book, snippet in product(range(4), range(3)):
        row = {"book_id": book, "book": f"made-up book {book}", "snippet_id": snippet, "label": book % 2}
        rows.append({**row, "snippet": made_text(f"b{book}-{snippet}", 40 + snippet)})
    return {"README.md": b"# BookMIA\n", "book_data.jsonl": jsonl(rows)}


def mimir() -> dict[str, bytes]:
    """Return files like those of iamgroot42/mimir: a loading script, and one folder of JSON strings per side."""
    return {
        "mimir.py": b"raise SystemExit('this must never run')\n",
        **{
            f"cache_100_200_1000_512/{side}/{domain}_ngram_13_0.8.jsonl": jsonl(
                [made_text(f"{side}{domain}{row}", 30) for row in range(5)]
            )
            for side in ("train", "test")
            for domain in ("arxiv", "wikipedia_(en)")
        },
    }
