"""The result of a search as two tables, with one row per text and one row per passage."""

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
from audit_pipeline.extras.corpora.text_index import FoundPassage, TextIndex, TextPosition
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.tables import CORPUS_OVERLAP, OVERLAP_SPANS, OverlapPart, OverlapVerdict
from audit_pipeline.tables.table import Table

COMMON_FROM = 100
"""Number of documents with a passage's rarest run, above which the published rules call the passage shared text."""
_EXCERPT_WORDS = 25


def build_overlap_tables(
    result: SearchResult, names: Sequence[tuple[str, str]], run_id: str
) -> Mapping[Table, pa.Table]:
    """Build the tables corpus_overlap and overlap_spans of the searched texts, in the order of the texts.

    Args:
        result: The result of the search.
        names: The benchmark and the example_id of each text.
        run_id: Id of the run, which is stored in each row.
    """
    completeness = {
        "shards_read": result.whole_shards,
        "shards": len(result.corpus.shards),
        "is_complete": result.is_complete,
    }
    passages = group_by_text(result.index, result.passages)
    judge = None
    if result.evidence is not None:
        judge = EvidenceJudge(result.index, result.evidence, result.passages, result.document_count)
    descriptions = list(_describe_items(result, passages, judge))
    bounds = pairwise(np.searchsorted(result.items, np.arange(len(names) + 1)).tolist())
    rows: list[Mapping[str, object]] = []
    spans: list[Mapping[str, object]] = []
    for name, text, description, (question, after) in zip(
        names, result.audited.texts, descriptions, bounds, strict=True
    ):
        benchmark, example_id = name
        keys = {"benchmark": benchmark, "corpus": result.corpus.name, "example_id": example_id, "run_id": run_id}
        rows.append({**keys, **description, **completeness})
        for part in range(question, after):
            for span in _describe_spans(result, text, question, part, passages.get(part, []), judge):
                spans.append({**keys, **span})
    return {OVERLAP_SPANS: table_from_rows(spans, OVERLAP_SPANS), CORPUS_OVERLAP: table_from_rows(rows, CORPUS_OVERLAP)}


def _describe_items(
    result: SearchResult, passages: Mapping[int, Sequence[FoundPassage]], judge: EvidenceJudge | None
) -> Iterator[Mapping[str, object]]:
    """Yield the columns of corpus_overlap for each item."""
    index = result.index
    rule = result.rule
    # Each of the following arrays has one flag per word of all texts.
    is_run_start = index.run_at >= 0
    is_found_run_start = np.zeros(len(index.run_at), np.bool_)
    is_found_run_start[is_run_start] = result.passages.documents_of_run[index.run_at[is_run_start]] > 0
    is_covered = np.zeros(len(index.run_at), np.bool_)
    is_copied = np.zeros(len(index.run_at), np.bool_)
    copies: dict[int, list[FoundPassage]] = defaultdict(list)
    for part, passages_of_part in passages.items():
        for passage in passages_of_part:
            is_covered[passage.first : passage.end] |= passage.flags
            if not _is_shared(result, part, passage, judge):
                is_copied[passage.first : passage.end] |= passage.flags
                copies[part].append(passage)
    for question, after in pairwise([*np.flatnonzero(np.diff(result.items, prepend=-1)).tolist(), len(result.items)]):
        within = slice(index.first_word[question], index.first_word[after])
        n_words = int(within.stop - within.start)
        n_runs = int(np.count_nonzero(is_run_start[within]))
        n_found_runs = int(np.count_nonzero(is_found_run_start[within]))
        n_copied = int(np.count_nonzero(is_copied[within]))
        covered = copied = None
        if n_words:
            covered = int(np.count_nonzero(is_covered[within])) / n_words
            copied = n_copied / n_words
        item_passages: list[FoundPassage] = []
        for part in range(question, after):
            item_passages += passages.get(part, [])
        lengths = [np.count_nonzero(passage.flags) for passage in item_passages]
        document_counts = [passage.documents for passage in item_passages]
        if judge is not None:
            evidence = judge.classify_text(result.parts, question)
            contaminated = evidence.is_contaminated
        else:
            verdict = _classify_by_runs(n_runs, n_found_runs, n_copied)
            border = result.audited.borders[question]
            evidence = TextEvidence(verdict, part=_find_matched_part(index, border, copies[question] or item_passages))
            contaminated = None
            if n_runs:
                contaminated = rule.is_contaminated(n_found_runs / n_runs, covered or 0.0)
        yield {
            "rule": rule.name,
            "n": index.n,
            "words": n_words,
            "runs": n_runs,
            "templates": int(np.count_nonzero(index.templates[within])),
            "found_runs": n_found_runs,
            "covered": covered,
            "covered_by_copies": copied,
            "passages": len(item_passages),
            "longest": max(lengths, default=0),
            "documents": max(document_counts, default=0),
            "verdict": evidence.verdict,
            "contaminated": contaminated,
            "part": evidence.part,
            "by_chance": evidence.by_chance,
        }


def _classify_by_runs(n_runs: int, n_found_runs: int, n_copied: int) -> OverlapVerdict:
    """Return the verdict of a published rule on a text.

    Args:
        n_runs: Number of runs in the text.
        n_found_runs: Number of these runs that the corpus contains.
        n_copied: Number of the text's words in passages that are not shared text.
    """
    if not n_runs:
        return "too short to tell"
    if not n_found_runs:
        return "not found"
    if n_copied:
        return "found"
    return "shared text"


def _find_matched_part(index: TextIndex, border: int, passages: Sequence[FoundPassage]) -> OverlapPart | None:
    """Return the part of a text that passages overlap.

    The answer begins at the character ``border``. If ``border`` is 0, the text has no answer.
    """
    if not passages:
        return None
    if not border:
        return "text"
    is_in_question = any(index.starts[passage.first] < border for passage in passages)
    is_in_answer = any(index.ends[passage.end - 1] > border for passage in passages)
    if is_in_question and is_in_answer:
        return "question and answer"
    if is_in_question:
        return "question"
    return "answer"


def _is_shared(result: SearchResult, part: int, passage: FoundPassage, judge: EvidenceJudge | None) -> bool:
    if judge is not None:
        return judge.is_explained_by_chance(part, passage)
    return _count_documents_of_rarest_run(result, passage) > COMMON_FROM


def _count_documents_of_rarest_run(result: SearchResult, passage: FoundPassage) -> int:
    """Count the documents with the rarest run of a passage. Only runs whose words are all matched count."""
    is_whole = flag_run_starts(passage.flags, min(result.index.n, passage.end - passage.first))
    runs = result.index.run_at[passage.first : passage.end][is_whole]
    return int(result.passages.documents_of_run[runs[runs >= 0]].min(initial=result.document_count))


def _describe_spans(
    result: SearchResult,
    text: str,
    question: int,
    part: int,
    passages: Sequence[FoundPassage],
    judge: EvidenceJudge | None,
) -> Iterator[Mapping[str, object]]:
    """Yield the columns of overlap_spans for each passage of a part. Positions are relative to the whole text."""
    index = result.index
    offset = 0
    if part != question:
        offset = len(result.parts[question])
    for passage in passages:
        start = offset + int(index.starts[passage.first])
        end = offset + int(index.ends[passage.end - 1])
        excerpt_end = offset + int(index.ends[min(passage.first + _EXCERPT_WORDS, passage.end) - 1])
        excerpt = text[start:excerpt_end]
        if excerpt_end < end:
            excerpt += " …"
        before, after = extract_context(text, start, end)
        yield {
            "char_start": start,
            "char_end": end,
            "words": np.count_nonzero(passage.flags),
            "documents": passage.documents,
            "documents_of_rarest_run": _count_documents_of_rarest_run(result, passage),
            "is_common": _is_shared(result, part, passage, judge),
            **_describe_positions(result, passage.places),
            "before": before,
            "after": after,
            "excerpt": excerpt,
        }


def _describe_positions(result: SearchResult, positions: Sequence[TextPosition]) -> Mapping[str, object]:
    """Return the columns of overlap_spans with one value per position."""
    columns: dict[str, list[object]] = {"found_in": [], "shards": [], "urls": [], "starts": [], "contexts": []}
    for position in positions:
        columns["found_in"].append(position.document)
        columns["shards"].append(result.corpus.shards[position.shard].name)
        columns["urls"].append(position.url or "")
        columns["starts"].append(position.start)
        columns["contexts"].append(f"{position.before} … {position.after}".strip())
    return columns
