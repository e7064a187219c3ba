"""Synthetic repositories with the files, columns and splits of those that config/ names."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
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


def json_gz(rows: Rows) -> bytes:
    return gzip.compress(jsonl(rows), mtime=0)


def wikimia(lengths: Sequence[int] = (32, 64), rows: int = 12, seed: str = "") -> dict[str, bytes]:
    """Return files like those of swj0419/WikiMIA: one split and one Parquet file per length."""
    files = {
        f"data/WikiMIA_length{words}-00000-of-00001-0a1b2c3d4e5f.parquet": parquet(
            [{"input": made_text(f"{seed}w{words}-{row}", words), "label": row % 2} for row in range(rows)]
        )
        for words in lengths
    }
    splits = "".join(f"  - split: WikiMIA_length{words}\n    path: data/WikiMIA_length{words}-*\n" for words in lengths)
    return {
        "README.md": f"---\nlicense: mit\nconfigs:\n- config_name: default\n  data_files:\n{splits}---\n".encode(),
        **files,
    }


def bookmia(books: int = 4, snippets: int = 3) -> dict[str, bytes]:
    """Return files like those of swj0419/BookMIA: one file of snippets with the name and the number of their book."""
    rows = [
        {
            "book_id": book,
            "book": f"made-up book {book}",
            "snippet_id": snippet,
            "snippet": made_text(f"b{book}-{snippet}", 40 + snippet),
            "label": book % 2,
        }
        for book in range(books)
        for snippet in range(snippets)
    ]
    return {"README.md": b"# BookMIA\n", "book_data.jsonl": jsonl(rows)}


def mimir(domains: Sequence[str] = ("arxiv", "wikipedia_(en)"), rows: int = 5) -> dict[str, bytes]:
    """Return files like those of iamgroot42/mimir: a loading script, and one folder of JSON strings per side."""
    return {
        "mimir.py": b"raise SystemExit('this must never run')\n",
        **{
            f"cache_100_200_1000_512/{side}/{domain}_ngram_13_0.8.jsonl": jsonl(
                [made_text(f"{side}{domain}{row}", 30) for row in range(rows)]
            )
            for side in ("train", "test")
            for domain in domains
        },
    }


def c4(shards: int = 3, documents: int = 120) -> tuple[dict[str, bytes], list[str]]:
    """Return files like those of allenai/c4 (shards, variants, a validation split), and the texts of the shards."""
    texts = [[made_text(f"c4-{shard}-{one}", 20 + one % 30) for one in range(documents)] for shard in range(shards)]

    def shard(lines: Sequence[str]) -> bytes:
        return json_gz(
            [{"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": "https://x.invalid"} for text in lines]
        )

    other = shard(["this text belongs to another part of the data set"])
    files = {f"en/c4-train.{number:05}-of-{shards:05}.json.gz": shard(lines) for number, lines in enumerate(texts)}
    others = ("en/c4-validation.00000-of-00008.json.gz", "en.noclean/c4-train.00000-of-07168.json.gz")
    return {**files, **dict.fromkeys(others, other), "README.md": b"# C4\n"}, [one for lines in texts for one in lines]


def chinese_web_text(parts: int = 2, documents: int = 40) -> tuple[dict[str, bytes], list[str]]:
    """Return files like those of CASIA-LM/ChineseWebText, and their texts. The test file is not among the texts."""
    files: dict[str, bytes] = {"README.md": b"# ChineseWebText\n", "test.jsonl": jsonl([{"text": "不算在内"}])}
    texts: list[str] = []
    for crawl in ("2021-43", "2022-05"):
        for part in range(parts):
            lines = [f"第{part}部分，第{one}篇：" + "港口清晨很安静。" * (1 + one % 7) for one in range(documents)]
            texts += lines
            described = [
                {"title": "题", "score": 0.95, "text": text, "url": "u", "source_domain": "d"} for text in lines
            ]
            files[f"cleaner_subset/{crawl}/part-{part:04}.jsonl"] = jsonl(described)
    return files, texts


def mixed(documents: int = 30) -> tuple[dict[str, bytes], list[str]]:
    """Return a corpus with files of three formats, and its texts in reading order (Parquet first)."""
    texts = {name: [made_text(f"{name}{one}", 15) for one in range(documents)] for name in ("a", "b", "c")}
    files = {
        "data/a.parquet": parquet([{"text": text, "n": 1} for text in texts["a"]], row_group=7),
        "data/b.jsonl": jsonl([{"text": text} for text in texts["b"]]) + b"{broken\n",
        "data/c.jsonl.gz": json_gz([{"text": text} for text in texts["c"]]),
    }
    return files, [*texts["a"], *texts["b"], *texts["c"]]
