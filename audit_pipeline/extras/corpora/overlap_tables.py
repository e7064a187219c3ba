"""The tables of a search in an open corpus, with one row per text and one row per passage.

The tables of benchmarks are stored in the data folder.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.built_benchmark import BuiltBenchmark, read_built
from audit_pipeline.extras.corpora.alignment import flag_run_starts
from audit_pipeline.extras.corpora.config import OverlapRule
from audit_pipeline.extras.corpora.corpus_shards import ShardedCorpus
from audit_pipeline.extras.corpora.evidence_rule import EvidenceJudge, TextEvidence, group_by_text
from audit_pipeline.extras.corpora.matching import extract_context
from audit_pipeline.extras.corpora.search import SEARCH_VERSION, AuditedTexts, SearchResult, search_corpus
from audit_pipeline.extras.corpora.text_index import FoundPassage, TextIndex, TextPosition
from audit_pipeline.store import store
from audit_pipeline.store.files import table_from_rows
from audit_pipeline.store.ledger import LineageStep
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import CORPUS_OVERLAP, EXAMPLES, OVERLAP_SPANS, OverlapPart, OverlapVerdict
from audit_pipeline.tables.table import Table

COMMON_FROM = 100
"""Number of documents with a passage's rarest run, above which the published rules call the passage shared text."""
_EXCERPT_WORDS = 25


@dataclass(frozen=True)
class OverlapReport:
    """The stored result of the search for a benchmark's texts in a corpus.

    Attributes:
        texts: Rows of corpus_overlap, one per text of the benchmark.
        result: The result of the search, which covers the texts of all requested benchmarks.
        data_version: Data version of the stored rows of corpus_overlap.
    """

    benchmark: str
    texts: pa.Table
    result: SearchResult
    data_version: str

    @property
    def contaminated(self) -> int:
        """Return the number of texts that count as contaminated by the rule."""
        return sum(bool(flag) for flag in self.texts.column("contaminated").to_pylist())


def build_overlap_version(rule: OverlapRule, *, whole: bool = True) -> str:
    """Return the version of a search for the ledger: the code version and the rule.

    ``whole`` is False if the search reads only selected shards.
    """
    if not whole:
        return f"{SEARCH_VERSION} of a part: {rule.name}, {rule.n} words"
    return f"{SEARCH_VERSION}: {rule.name}, {rule.n} words"


def search_benchmarks(
    benchmarks: Sequence[str],
    corpus: ShardedCorpus,
    paths: DataPaths,
    run_id: str,
    rule: OverlapRule,
    *,
    processes: int = 1,
    on_progress: Callable[[str], None] | None = None,
) -> list[OverlapReport]:
    """Search the corpus once for the texts of all given benchmarks, and store the results of each benchmark.

    If an example has a context, the context is the question and the text is the answer. After an interruption, the
    next call resumes the search.

    Raises:
        DataError: If a benchmark is not built, all texts are too short, or no document is readable.
    """
    built_benchmarks = [read_built(paths, benchmark) for benchmark in benchmarks]
    texts: list[str] = []
    borders: list[int] = []
    sets: list[int] = []
    names: list[tuple[str, str]] = []
    for number, built in enumerate(built_benchmarks):
        texts += EXAMPLES.texts(built.examples)
        borders += [len(context or "") for context in built.contexts]
        sets += [number] * built.examples.num_rows
        names += [(built.name, example_id) for example_id in built.examples.column("example_id").to_pylist()]
    audited = AuditedTexts(texts, borders, sets)
    file = paths.rewritten_file(CORPUS_OVERLAP.name, CORPUS_OVERLAP.partitioned_by, f"{benchmarks[0]}|{corpus.name}")
    checkpoint = file.with_name(".search.partial")
    result = search_corpus(audited, corpus, rule, processes=processes, checkpoint=checkpoint, on_progress=on_progress)
    tables = build_overlap_tables(result, names, run_id)
    reports = [_write_report(built, tables, result, paths, run_id) for built in built_benchmarks]
    checkpoint.unlink(missing_ok=True)
    return reports


def _write_report(
    built: BuiltBenchmark, tables: Mapping[Table, pa.Table], result: SearchResult, paths: DataPaths, run_id: str
) -> OverlapReport:
    """Store the rows of one benchmark, and return its report."""
    benchmark = built.name
    corpus = result.corpus
    partition = f"{benchmark}|{corpus.name}"
    benchmark_tables = {table: rows.filter(pc.field("benchmark") == benchmark) for table, rows in tables.items()}
    step = LineageStep.now(run_id, CORPUS_OVERLAP.name, build_overlap_version(result.rule, whole=corpus.is_whole))
    upstream = {f"examples/{benchmark}": built.digest, f"corpus/{corpus.name}": corpus.stamp}
    settings = {
        "corpus_sha256": result.digest,
        "documents": result.document_count,
        "shards": f"{result.whole_shards} of {len(corpus.shards)}",
        "unread": [report.name for report in result.reports.values() if report.problem is not None],
    }
    version = ""
    # CORPUS_OVERLAP is written last, so ``version`` is its data version after the loop.
    for table, rows in benchmark_tables.items():
        version = store.write(
            paths, step, table, partition, rows, upstream=upstream, benchmark_digest=built.digest, settings=settings
        )
    return OverlapReport(benchmark, benchmark_tables[CORPUS_OVERLAP], result, version)


def describe_overlap(result: SearchResult, verdicts: Counter[str], texts: int) -> str:
    """Describe in one line the verdicts on the texts, and the part of the corpus that was read."""
    shards = len(result.corpus.shards)
    whole = result.whole_shards
    if whole < shards:
        read = f"{whole:,} of {shards:,} shards (the unread part may contain further texts)"
    elif not result.is_complete:
        read = f"all {shards:,} shard(s), except some rows or files (the unread part may contain further texts)"
    else:
        read = f"all {shards:,} shard(s)"
    return (
        f"{verdicts['found']:,} of {texts:,} texts are in {result.corpus.name} in part or whole, "
        f"{verdicts['shared text']:,} only with shared text; {verdicts['too short to tell']:,} are too short to tell. "
        f"{result.document_count:,} documents were read, from {read}"
    )


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
