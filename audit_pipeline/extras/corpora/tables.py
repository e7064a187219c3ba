"""The results of a search as tables: a row a text, and a row a passage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from audit_pipeline.extras.corpora.matching import context_of
from audit_pipeline.extras.corpora.passages import Kept
from audit_pipeline.extras.corpora.search import SearchResult
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS, OverlapVerdict
from audit_pipeline.tables.table import Table

COMMON_FROM = 100
"""A passage whose every run stands in more documents than this is a common phrase, and no copy."""
_EXCERPT_WORDS = 25


def build_overlap_tables(
    result: SearchResult, benchmark: str, example_ids: Sequence[str], texts: Sequence[str], run_id: str
) -> Mapping[Table, pa.Table]:
    """Return the tables corpus_overlap and overlap_spans of the texts that were searched, in their order."""
    names = {"benchmark": benchmark, "corpus": result.corpus.name, "run_id": run_id}
    read = {
        "shards_read": result.whole_shards,
        "shards": len(result.corpus.shards),
        "is_complete": result.is_complete,
    }
    passages: dict[int, list[Kept]] = {}
    for kept in result.passages:
        passages.setdefault(result.index.text_of(np.array([kept.first])).item(), []).append(kept)
    described = zip(example_ids, _describe_texts(result, passages), strict=True)
    rows = [{**names, "example_id": example_id, **row, **read} for example_id, row in described]
    spans = [
        {**names, "example_id": example_id, **span}
        for number, (example_id, text) in enumerate(zip(example_ids, texts, strict=True))
        for span in _spans(result, text, passages.get(number, []))
    ]
    return {OVERLAP_SPANS: table_from_rows(spans, OVERLAP_SPANS), CORPUS_OVERLAP: table_from_rows(rows, CORPUS_OVERLAP)}


def _describe_texts(result: SearchResult, passages: Mapping[int, Sequence[Kept]]) -> Iterator[Mapping[str, object]]:
    """Yield what is said of each text."""
    index, rule = result.index, result.rule
    looked_for = index.run_at >= 0
    # Of every word of all texts: whether a run begins there that some document holds, and whether it lies in such a
    # run, and in a passage that is a copy.
    found_at, copied_at = np.zeros((2, len(index.run_at)), np.bool_)
    found_at[looked_for] = result.passages.documents_of_run[index.run_at[looked_for]] > 0
    steps = np.zeros(len(found_at) + index.n + 1, np.int64)
    begins = np.flatnonzero(found_at)
    np.add.at(steps, begins, 1)
    np.add.at(steps, begins + index.n, -1)
    covered_at = np.cumsum(steps)[: len(found_at)] > 0
    for kept in result.passages:
        if _count_documents_of_rarest_run(result, kept) <= COMMON_FROM:
            copied_at[kept.first : kept.end] = True
    for number, (begin, end) in enumerate(pairwise(index.first_word.tolist())):
        words, own = end - begin, passages.get(number, [])
        runs, found, templates, covered, copied = (
            int(np.count_nonzero(flags[begin:end]))
            for flags in (looked_for, found_at, index.templates, covered_at, copied_at)
        )
        verdict: OverlapVerdict = "not found"
        if not runs:
            verdict = "too short"
        elif found:
            verdict = "found" if copied else "common"
        share = covered / words if words else None
        yield {
            "rule": rule.name,
            "n": index.n,
            "words": words,
            "runs": runs,
            "templates": templates,
            "found_runs": found,
            "covered": share,
            "covered_by_copies": copied / words if words else None,
            "passages": len(own),
            "longest": max((kept.end - kept.first for kept in own), default=0),
            "documents": max((kept.documents for kept in own), default=0),
            "verdict": verdict,
            "contaminated": rule.is_contaminated(found / runs, share or 0.0) if runs else None,
        }


def _count_documents_of_rarest_run(result: SearchResult, kept: Kept) -> int:
    runs = result.index.run_at[kept.first : kept.end - result.index.n + 1]
    return int(result.passages.documents_of_run[runs].min())


def _spans(result: SearchResult, text: str, passages: Sequence[Kept]) -> Iterator[Mapping[str, object]]:
    index = result.index
    for kept in passages:
        start, end = int(index.starts[kept.first]), int(index.ends[kept.end - 1])
        stop = int(index.ends[min(kept.first + _EXCERPT_WORDS, kept.end) - 1])
        before, after = context_of(text, start, end)
        rarest = _count_documents_of_rarest_run(result, kept)
        yield {
            "char_start": start,
            "char_end": end,
            "words": kept.end - kept.first,
            "documents": kept.documents,
            "documents_of_rarest_run": rarest,
            "is_common": rarest > COMMON_FROM,
            "found_in": [place.document for place in kept.places],
            "shards": [result.corpus.shards[place.shard].name for place in kept.places],
            "urls": [place.url or "" for place in kept.places],
            "starts": [place.start for place in kept.places],
            "contexts": [f"{place.before} … {place.after}".strip() for place in kept.places],
            "before": before,
            "after": after,
            "excerpt": text[start:stop] + (" …" if stop < end else ""),
        }
