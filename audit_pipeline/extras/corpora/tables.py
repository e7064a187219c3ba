"""The results of a search as tables: a row a text, and a row a passage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from audit_pipeline.extras.corpora.evidence import EvidenceJudge
from audit_pipeline.extras.corpora.matching import context_of
from audit_pipeline.extras.corpora.passages import Kept
from audit_pipeline.extras.corpora.search import SearchResult
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS, OverlapVerdict
from audit_pipeline.tables.table import Table

COMMON_FROM = 100
"""By the published rules a passage whose every run stands in more documents than this is shared text, no copy."""
_EXCERPT_WORDS = 25


def build_overlap_tables(
    result: SearchResult, names: Sequence[tuple[str, str]], texts: Sequence[str], run_id: str
) -> Mapping[Table, pa.Table]:
    """Return the tables corpus_overlap and overlap_spans of the texts that were searched, in their order.

    ``names``: of each text its benchmark and its example_id.
    """
    read = {
        "shards_read": result.whole_shards,
        "shards": len(result.corpus.shards),
        "is_complete": result.is_complete,
    }
    named = [
        {"benchmark": benchmark, "corpus": result.corpus.name, "example_id": example_id, "run_id": run_id}
        for benchmark, example_id in names
    ]
    passages: dict[int, list[Kept]] = {}
    for kept in result.passages:
        passages.setdefault(int(result.index.text_of(np.array([kept.first]))[0]), []).append(kept)
    judge = None
    if result.evidence is not None:
        judge = EvidenceJudge(result.index, result.evidence, result.passages, result.documents)
    described = _describe_parts(result, passages, judge)
    first_part = np.searchsorted(result.items, np.arange(len(texts) + 1)).tolist()
    rows: list[Mapping[str, object]] = []
    spans: list[Mapping[str, object]] = []
    for item, (name, text) in enumerate(zip(named, texts, strict=True)):
        parts = range(first_part[item], first_part[item + 1])
        rows.append({**name, **_describe_item(result, [described[part] for part in parts], parts[0], judge), **read})
        spans += [
            {**name, **span}
            for part in parts
            for span in _spans(result, text, part, passages.get(part, []), _find_offset(result, parts[0], part), judge)
        ]
    return {OVERLAP_SPANS: table_from_rows(spans, OVERLAP_SPANS), CORPUS_OVERLAP: table_from_rows(rows, CORPUS_OVERLAP)}


def _find_offset(result: SearchResult, question: int, part: int) -> int:
    """Return where a part begins in its item's text."""
    return 0 if part == question else len(result.parts[question])


@dataclass(frozen=True)
class _PartCounts:
    """What is counted of a part of an item, in words and runs."""

    words: int
    runs: int
    found: int
    templates: int
    covered: int
    copied: int
    passages: int
    longest: int
    documents: int


def _describe_parts(
    result: SearchResult, passages: Mapping[int, Sequence[Kept]], judge: EvidenceJudge | None
) -> list[_PartCounts]:
    """Return the counts of each part."""
    index = result.index
    looked_for = index.run_at >= 0
    # Of every word of all texts: whether a run begins there that some document holds, and whether it lies in such a
    # run (or was aligned), and in a passage that is a copy.
    found_at, covered_at, copied_at = np.zeros((3, len(index.run_at)), np.bool_)
    found_at[looked_for] = result.passages.documents_of_run[index.run_at[looked_for]] > 0
    if judge is None:
        steps = np.zeros(len(found_at) + index.n + 1, np.int64)
        begins = np.flatnonzero(found_at)
        np.add.at(steps, begins, 1)
        np.add.at(steps, begins + index.n, -1)
        covered_at = np.cumsum(steps)[: len(found_at)] > 0
    for part, own in passages.items():
        for kept in own:
            if judge is not None:
                words = slice(*index.first_word[part : part + 2].tolist())
                matched = judge.matched_words(part, kept)
                covered_at[words] |= matched
                if not judge.is_shared(part, kept):
                    copied_at[words] |= matched
            elif _count_documents_of_rarest_run(result, kept) <= COMMON_FROM:
                copied_at[kept.first : kept.end] = True
    described = []
    for part, (begin, end) in enumerate(pairwise(index.first_word.tolist())):
        own = passages.get(part, [])
        runs, found, templates, covered, copied = (
            int(np.count_nonzero(flags[begin:end]))
            for flags in (looked_for, found_at, index.templates, covered_at, copied_at)
        )
        lengths = [_count_words(kept) for kept in own]
        described.append(
            _PartCounts(
                end - begin,
                runs,
                found,
                templates,
                covered,
                copied,
                len(own),
                max(lengths, default=0),
                max((kept.documents for kept in own), default=0),
            )
        )
    return described


def _count_words(kept: Kept) -> int:
    return kept.matched.count("1") or kept.end - kept.first


def _describe_item(
    result: SearchResult, parts: Sequence[_PartCounts], question: int, judge: EvidenceJudge | None
) -> Mapping[str, object]:
    """Return what is said of an item, of the counts of its parts."""
    words, runs, found, templates, covered, copied, passages = (
        sum(getattr(part, name) for part in parts)
        for name in ("words", "runs", "found", "templates", "covered", "copied", "passages")
    )
    share = covered / words if words else None
    rule = result.rule
    row = {
        "rule": rule.name,
        "n": result.index.n,
        "words": words,
        "runs": runs,
        "templates": templates,
        "found_runs": found,
        "covered": share,
        "covered_by_copies": copied / words if words else None,
        "passages": passages,
        "longest": max(part.longest for part in parts),
        "documents": max(part.documents for part in parts),
    }
    if judge is not None:
        shown = judge.judge(result.parts, question)
        contaminated, part, by_chance = shown.is_contaminated, shown.part, shown.by_chance
        return {**row, "verdict": shown.verdict, "contaminated": contaminated, "part": part, "by_chance": by_chance}
    verdict: OverlapVerdict = "not found"
    if not runs:
        verdict = "too short to tell"
    elif found:
        verdict = "found" if copied else "shared text"
    counts = rule.is_contaminated(found / runs, share or 0.0) if runs else None
    return {**row, "verdict": verdict, "contaminated": counts, "part": None, "by_chance": None}


def _count_documents_of_rarest_run(result: SearchResult, kept: Kept) -> int:
    """Return how many documents hold the run that fewest hold, of those that a passage holds whole."""
    begins = np.arange(kept.first, max(kept.end - result.index.n, kept.first) + 1)
    runs = result.index.run_at[begins]
    if kept.matched:
        matched = np.array([flag == "1" for flag in kept.matched])
        length = min(result.index.n, len(matched))
        whole = np.convolve(matched, np.ones(length))[length - 1 : len(matched)] == length
        runs = runs[whole & (runs >= 0)]
    return int(result.passages.documents_of_run[runs].min(initial=result.documents))


def _spans(
    result: SearchResult, text: str, part: int, passages: Sequence[Kept], offset: int, judge: EvidenceJudge | None
) -> Iterator[Mapping[str, object]]:
    index = result.index
    for kept in passages:
        start, end = offset + int(index.starts[kept.first]), offset + int(index.ends[kept.end - 1])
        stop = offset + int(index.ends[min(kept.first + _EXCERPT_WORDS, kept.end) - 1])
        before, after = context_of(text, start, end)
        rarest = _count_documents_of_rarest_run(result, kept)
        yield {
            "char_start": start,
            "char_end": end,
            "words": _count_words(kept),
            "documents": kept.documents,
            "documents_of_rarest_run": rarest,
            "is_common": rarest > COMMON_FROM if judge is None else judge.is_shared(part, kept),
            "found_in": [place.document for place in kept.places],
            "shards": [result.corpus.shards[place.shard].name for place in kept.places],
            "urls": [place.url or "" for place in kept.places],
            "starts": [place.start for place in kept.places],
            "contexts": [f"{place.before} … {place.after}".strip() for place in kept.places],
            "before": before,
            "after": after,
            "excerpt": text[start:stop] + (" …" if stop < end else ""),
        }
