"""Corpora of made-up documents, the tables of a search in them, and the passages in them by definition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from audit_pipeline.extras.corpora.config import OverlapRule
from audit_pipeline.extras.corpora.corpus_shards import open_sharded_corpus
from audit_pipeline.extras.corpora.overlap_tables import build_overlap_tables
from audit_pipeline.extras.corpora.search import AuditedTexts, SearchResult, search_corpus
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS

Rows = list[dict[str, Any]]


def write_corpus(folder: Path, documents: Sequence[str], shards: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    cuts = [len(documents) * number // shards for number in range(shards + 1)]
    for number, (begin, end) in enumerate(pairwise(cuts)):
        rows = [{"id": f"d{at}", "text": documents[at], "url": f"http://x/{at}"} for at in range(begin, end)]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def search_texts(
    folder: Path, documents: Sequence[str], texts: AuditedTexts | Sequence[str], rule: OverlapRule, shards: int = 1
) -> tuple[SearchResult, Rows, Rows]:
    """Search documents for texts, and return the result with the rows of corpus_overlap and of overlap_spans."""
    result = search_corpus(texts, open_sharded_corpus(str(write_corpus(folder, documents, shards))), rule)
    tables = build_overlap_tables(result, [("b", f"e{at}") for at in range(len(result.audited.texts))], "r")
    return result, tables[CORPUS_OVERLAP].to_pylist(), tables[OVERLAP_SPANS].to_pylist()


def find_words(document: Sequence[str], words: Sequence[str]) -> int | None:
    """Return the index of the first word at which a document contains words, or None."""
    before, found, _ = f" {' '.join(document)} ".partition(f" {' '.join(words)} ")
    return before.count(" ") if found else None


def find_passages(
    texts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]], n: int, max_positions: int
) -> list[dict[tuple[int, int], dict[int, int]]]:
    """Find the longest common passages by their definition. Runs at more than ``max_positions`` do not count.

    Returns:
        For each text, the positions in the documents by the words [first, end) of each passage.
    """
    counts = Counter(tuple(text[at : at + n]) for text in texts for at in range(len(text) - n + 1))
    passages = []
    for text in texts:
        found: dict[tuple[int, int], dict[int, int]] = {}
        for first in range(len(text) - n + 1):
            for end in range(first + n, len(text) + 1):
                places = {number: find_words(document, text[first:end]) for number, document in enumerate(documents)}
                holders = {number: place for number, place in places.items() if place is not None}
                if counts[tuple(text[end - n : end])] > max_positions or not holders:
                    break
                found[first, end] = holders
        longest = [(a, b) for a, b in found if not any((c, d) != (a, b) and c <= a and b <= d for c, d in found)]
        passages.append({span: found[span] for span in longest})
    return passages
