"""The results of a search as tables: a row a text, and a row a passage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from audit_pipeline.extras.corpora.alignment import flag_run_starts
from audit_pipeline.extras.corpora.evidence_rule import EvidenceJudge, TextEvidence, group_by_text
from audit_pipeline.extras.corpora.matching import extract_context
from audit_pipeline.extras.corpora.search import SearchResult
from audit_pipeline.extras.corpora.text_index import FoundPassage, TextIndex
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS, OverlapPart, OverlapVerdict
from audit_pipeline.tables.table import Table

COMMON_FROM = 100
"""By the published rules a passage is shared text where more documents than this hold each of its runs."""
_EXCERPT_WORDS = 25


def build_overlap_tables(
    result: SearchResult, names: Sequence[tuple[str, str]], run_id: str
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
    passages = group_by_text(result.index, result.passages)
    judge = None
    if result.evidence is not None:
        judge = EvidenceJudge(result.index, result.evidence, result.passages, result.document_count)
    described = _describe_items(result, passages, judge)
    first_part = np.searchsorted(result.items, np.arange(len(names) + 1)).tolist()
    rows = [{**name, **row, **read} for name, row in zip(named, described, strict=True)]
    spans = [
        {**name, **span}
        for name, text, (question, after) in zip(named, result.audited.texts, pairwise(first_part), strict=True)
        for part in range(question, after)
        for span in _describe_spans(result, text, question, part, passages.get(part, []), judge)
    ]
    return {OVERLAP_SPANS: table_from_rows(spans, OVERLAP_SPANS), CORPUS_OVERLAP: table_from_rows(rows, CORPUS_OVERLAP)}


def _describe_items(
    result: SearchResult, passages: Mapping[int, Sequence[FoundPassage]], judge: EvidenceJudge | None
) -> Iterator[Mapping[str, object]]:
    """Yield the columns of corpus_overlap for each item."""
    index, rule = result.index, result.rule
    looked_for = index.run_at >= 0
    # Of every word of all texts: whether a run begins there that some document holds, whether some document holds the
    # word in a passage, and in a passage that is a copy.
    found_at, covered_at, copied_at = np.zeros((3, len(index.run_at)), np.bool_)
    found_at[looked_for] = result.passages.documents_of_run[index.run_at[looked_for]] > 0
    copies: dict[int, list[FoundPassage]] = defaultdict(list)
    for part, kept_of_part in passages.items():
        for kept in kept_of_part:
            covered_at[kept.first : kept.end] |= kept.flags
            if not _is_shared(result, part, kept, judge):
                copied_at[kept.first : kept.end] |= kept.flags
                copies[part].append(kept)
    for question, after in pairwise([*np.flatnonzero(np.diff(result.items, prepend=-1)).tolist(), len(result.items)]):
        begin, end = index.first_word[question], index.first_word[after]
        words, own = int(end - begin), [kept for part in range(question, after) for kept in passages.get(part, [])]
        runs, found, templates, covered, copied = (
            int(np.count_nonzero(flags[begin:end]))
            for flags in (looked_for, found_at, index.templates, covered_at, copied_at)
        )
        share = covered / words if words else None
        if judge is not None:
            shown = judge.classify_text(result.parts, question)
            contaminated = shown.is_contaminated
        else:
            verdict: OverlapVerdict = "not found"
            if not runs:
                verdict = "too short to tell"
            elif found:
                verdict = "found" if copied else "shared text"
            named = copies[question] or own
            shown = TextEvidence(verdict, part=_find_matched_part(index, result.audited.borders[question], named))
            contaminated = rule.is_contaminated(found / runs, share or 0.0) if runs else None
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
            "longest": max((np.count_nonzero(kept.flags) for kept in own), default=0),
            "documents": max((kept.documents for kept in own), default=0),
            "verdict": shown.verdict,
            "contaminated": contaminated,
            "part": shown.part,
            "by_chance": shown.by_chance,
        }


def _find_matched_part(index: TextIndex, border: int, passages: Sequence[FoundPassage]) -> OverlapPart | None:
    """Return what passages hold of a text, wherever: of its question before ``border`` (0: it has none), its answer."""
    if not border:
        return "text" if passages else None
    question = any(index.starts[kept.first] < border for kept in passages)
    answer = any(index.ends[kept.end - 1] > border for kept in passages)
    return "question and answer" if question and answer else "question" if question else "answer" if answer else None


def _is_shared(result: SearchResult, part: int, kept: FoundPassage, judge: EvidenceJudge | None) -> bool:
    if judge is not None:
        return judge.is_explained_by_chance(part, kept)
    return _count_documents_of_rarest_run(result, kept) > COMMON_FROM


def _count_documents_of_rarest_run(result: SearchResult, kept: FoundPassage) -> int:
    """Return how many documents hold the run that fewest hold, of those that a passage holds whole."""
    is_whole = flag_run_starts(kept.flags, min(result.index.n, kept.end - kept.first))
    runs = result.index.run_at[kept.first : kept.end][is_whole]
    return int(result.passages.documents_of_run[runs[runs >= 0]].min(initial=result.document_count))


def _describe_spans(
    result: SearchResult,
    text: str,
    question: int,
    part: int,
    passages: Sequence[FoundPassage],
    judge: EvidenceJudge | None,
) -> Iterator[Mapping[str, object]]:
    index, offset = result.index, 0 if part == question else len(result.parts[question])
    for kept in passages:
        start, end = offset + int(index.starts[kept.first]), offset + int(index.ends[kept.end - 1])
        stop = offset + int(index.ends[min(kept.first + _EXCERPT_WORDS, kept.end) - 1])
        before, after = extract_context(text, start, end)
        yield {
            "char_start": start,
            "char_end": end,
            "words": np.count_nonzero(kept.flags),
            "documents": kept.documents,
            "documents_of_rarest_run": _count_documents_of_rarest_run(result, kept),
            "is_common": _is_shared(result, part, kept, judge),
            "found_in": [place.document for place in kept.places],
            "shards": [result.corpus.shards[place.shard].name for place in kept.places],
            "urls": [place.url or "" for place in kept.places],
            "starts": [place.start for place in kept.places],
            "contexts": [f"{place.before} … {place.after}".strip() for place in kept.places],
            "before": before,
            "after": after,
            "excerpt": text[start:stop] + (" …" if stop < end else ""),
        }
