"""The search of a corpus for passages of texts: shard by shard, in several processes, and resumable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from audit_pipeline.errors import AuditError, DataError, TransientError, to_one_line
from audit_pipeline.extras.corpora.config import OverlapRule
from audit_pipeline.extras.corpora.corpus_shards import CorpusShard, ShardedCorpus
from audit_pipeline.extras.corpora.evidence_rule import EvidenceIndex, build_evidence_index
from audit_pipeline.extras.corpora.matching import Matcher
from audit_pipeline.extras.corpora.text_index import PassageSet, TextIndex, build_index
from audit_pipeline.extras.corpora.word_hashes import Places, hash_words_of_texts
from audit_pipeline.readers.text_rows import Skipped
from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.tables import digest, text_sha256

SEARCH_VERSION = 5
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class ShardReport:
    """The result of reading a shard. Checkpoints contain its fields.

    Attributes:
        documents: Number of documents that were read.
        skipped: Number of rows that could not be used.
        sha256: Checksum of a local file, or None for other shards.
        problem: Reason why the rest of the shard is unread, or None if the shard was read to its end.
        first_skipped: Location of the first skipped row, and the reason.
    """

    number: int
    name: str
    documents: int
    skipped: int
    sha256: str | None
    problem: str | None = None
    first_skipped: str | None = None


@dataclass(frozen=True)
class AuditedTexts:
    """The texts that are searched for.

    Attributes:
        borders: Position in each text at which its answer begins, or 0 if it has no answer.
        sets: Index of each text's test set. Empty if all texts belong to one test set.
    """

    texts: Sequence[str]
    borders: Sequence[int]
    sets: Sequence[int] = ()

    def split_into_parts(self) -> tuple[list[str], Places, Places]:
        """Split the texts into questions and answers, which the rule of evidence searches for separately.

        Returns:
            The parts, and two int64 arrays of shape (n_parts,). The first has the index of each part's text. The second
            has the index of the part that is its answer, or -1 for a part without an answer.
        """
        parts: list[str] = []
        items: list[int] = []
        answers: list[int] = []
        for item, (text, border) in enumerate(zip(self.texts, self.borders, strict=True)):
            question = text[:border]
            answer = text[border:]
            if question.strip() and answer.strip():
                parts += [question, answer]
                items += [item, item]
                answers += [len(parts) - 1, -1]
            else:
                parts.append(text)
                items.append(item)
                answers.append(-1)
        return parts, np.array(items, np.int64), np.array(answers, np.int64)


@dataclass(eq=False)
class SearchResult:
    """The passages of the texts in a corpus, and the shards that were read.

    Attributes:
        parts: The texts of the index: the audited texts, or their questions and answers.
        items: Index of each part's audited text, int64 array of shape (n_parts,).
        reports: Reports by the numbers of the shards.
    """

    corpus: ShardedCorpus
    rule: OverlapRule
    audited: AuditedTexts
    parts: Sequence[str]
    items: Places
    index: TextIndex
    evidence: EvidenceIndex | None
    passages: PassageSet
    reports: dict[int, ShardReport] = field(default_factory=dict)

    @property
    def whole_shards(self) -> int:
        """Return the number of shards that were read to their ends."""
        return sum(report.problem is None for report in self.reports.values())

    @property
    def is_complete(self) -> bool:
        """Return True if all shards were read to their ends and no row or file was skipped."""
        has_skipped = any(report.skipped for report in self.reports.values())
        return self.whole_shards == len(self.corpus.shards) and not has_skipped and not self.corpus.ignored

    @property
    def document_count(self) -> int:
        """Return the number of documents in the read shards."""
        return sum(report.documents for report in self.reports.values())

    @property
    def digest(self) -> str:
        """Compute a digest of the corpus from each shard's name and sha256, or its stamp if the sha256 is unknown."""
        versions: list[list[str]] = []
        for number, shard in enumerate(self.corpus.shards):
            report = self.reports.get(number)
            if report is not None and report.sha256:
                versions.append([shard.name, report.sha256])
            else:
                versions.append([shard.name, shard.stamp])
        return digest(versions)[:16]


def search_corpus(
    audited: AuditedTexts | Sequence[str],
    corpus: ShardedCorpus,
    rule: OverlapRule,
    *,
    processes: int = 1,
    checkpoint: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> SearchResult:
    """Search a corpus for all passages of the texts.

    A passage has at least ``rule.n`` words, or is a whole text of fewer words. A shard that cannot be read to its end
    is reported, and the search continues with the other shards.

    Args:
        audited: The texts. Plain texts have no answers and belong to one test set.
        corpus: The corpus.
        rule: The rule by which a text counts as contaminated.
        processes: Number of processes.
        checkpoint: File that stores the progress. A stopped search resumes with the remaining shards.
        on_progress: Callback that receives a description of the progress.

    Raises:
        DataError: If all texts are too short or no document is readable.
    """
    result = prepare_search(audited, corpus, rule)
    key = digest([text_sha256(text) for text in result.parts], rule.n, rule.measure, corpus.stamp, SEARCH_VERSION)
    if checkpoint is not None:
        _resume(result, checkpoint, key)
    progress = _SearchProgress(result)
    remaining = [number for number in corpus.selected if number not in result.reports]
    saved_at = reported_at = time.monotonic()
    run = joblib.Parallel(max(1, min(processes, len(remaining))), return_as="generator_unordered")
    search = joblib.delayed(search_shard)
    tasks = (search(result.index, number, corpus.shards[number], result.evidence) for number in remaining)
    try:
        with closing(run(tasks)) as shard_results:
            for report, passages in shard_results:
                result.passages.merge_record(passages)
                result.reports[report.number] = report
                is_last = len(result.reports) == len(corpus.selected)
                now = time.monotonic()
                if checkpoint is not None and (is_last or now - saved_at >= CHECKPOINT_SECONDS):
                    _write_checkpoint(result, checkpoint, key)
                    saved_at = now
                if on_progress is not None and (is_last or now - reported_at >= 1.0):
                    on_progress(progress.describe(now))
                    reported_at = now
    except BrokenProcessPool as error:
        raise DataError(
            "a process of the search was killed, perhaps because memory ran out. Run the command again with fewer "
            "--processes. The search then continues with the remaining shards."
        ) from error
    if not result.document_count:
        raise DataError(f"no document of the corpus {corpus.name} can be read: {_find_first_problem(result)}")
    return result


def _resume(result: SearchResult, checkpoint: Path, key: str) -> None:
    """Load the checkpoint if it is readable and belongs to this search. Otherwise all shards are searched."""
    record = read_json_if_whole(checkpoint)
    if record is not None and record.get("key") == key:
        result.passages.merge_record(record["found"])
        result.reports = {fields["number"]: ShardReport(**fields) for fields in record["shards"]}


def _write_checkpoint(result: SearchResult, checkpoint: Path, key: str) -> None:
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    shards = [asdict(report) for report in result.reports.values()]
    write_json(checkpoint, {"key": key, "shards": shards, "found": result.passages.to_record()})


def _find_first_problem(result: SearchResult) -> str:
    for report in result.reports.values():
        problem = report.problem or report.first_skipped
        if problem is not None:
            return problem
    return "the corpus is empty"


class _SearchProgress:
    """The progress of a search. The remaining time is estimated from the speed since this object was created."""

    def __init__(self, result: SearchResult) -> None:
        corpus = result.corpus
        self._result = result
        self._sizes = {number: corpus.shards[number].bytes or 0 for number in corpus.selected}
        self._began = time.monotonic()
        self._bytes_before = self._count_bytes()

    def _count_bytes(self) -> int:
        return sum(self._sizes.get(number, 0) for number in self._result.reports)

    def describe(self, now: float) -> str:
        """Describe the read shards and bytes and, if known, the remaining seconds."""
        done = self._count_bytes()
        total = sum(self._sizes.values())
        n_shards = len(self._result.corpus.selected)
        text = f"{len(self._result.reports):,} of {n_shards:,} shards, {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
        if total > done > self._bytes_before:
            seconds = (now - self._began) * (total - done) / (done - self._bytes_before)
            text += f", about {seconds:,.0f} s left"
        return text


def prepare_search(audited: AuditedTexts | Sequence[str], corpus: ShardedCorpus, rule: OverlapRule) -> SearchResult:
    """Index the texts, and return the result of a search that has not begun.

    Raises:
        DataError: If all texts are too short.
    """
    if not isinstance(audited, AuditedTexts):
        audited = AuditedTexts(audited, [0] * len(audited))
    parts = audited.texts
    items = np.arange(len(audited.texts))
    if rule.measure == "evidence":
        parts, items, answers = audited.split_into_parts()
    words, first_word = hash_words_of_texts(parts)
    index = build_index(words, first_word, rule.n, rule.min_words)
    evidence = None
    if rule.measure == "evidence":
        # Equal texts count as one item.
        numbers: dict[str, int] = {}
        item_of_text = np.array([numbers.setdefault(text, len(numbers)) for text in audited.texts], np.int64)
        sets = np.array(audited.sets or [0] * len(item_of_text), np.int64)
        evidence = build_evidence_index(parts, words, index, item_of_text[items], sets[items], answers, rule.share)
    return SearchResult(corpus, rule, audited, parts, items, index, evidence, _prepare_passages(index, evidence))


def _prepare_passages(index: TextIndex, evidence: EvidenceIndex | None) -> PassageSet:
    if evidence is None:
        return PassageSet(len(index.runs))
    return PassageSet(len(index.runs), len(evidence.words), evidence.share)


def search_shard(
    index: TextIndex, number: int, shard: CorpusShard, evidence: EvidenceIndex | None = None
) -> tuple[ShardReport, Mapping[str, Any]]:
    """Search one shard.

    Returns:
        The report, and the passages as JSON values (:meth:`PassageSet.to_record`), which another process can receive.
    """
    passages = _prepare_passages(index, evidence)
    matcher = Matcher(index, number, evidence)
    documents = skipped = 0
    problem = first_skipped = None
    sha256 = shard.digest()
    try:
        for document in shard.documents():
            if isinstance(document, Skipped):
                skipped += 1
                first_skipped = first_skipped or f"{document.location}: {document.reason}"
                continue
            documents += 1
            for matches in matcher.add(document):
                passages.merge(matches)
    except TransientError:
        # The error ends the search. The shard has no report yet, so the next search reads it again.
        raise
    except AuditError as error:
        problem = to_one_line(error)
    if problem is None and shard.has_changed():
        problem = f"{shard.name} has changed since the search began: run the search again when the file is complete"
    for matches in matcher.flush():
        passages.merge(matches)
    return ShardReport(number, shard.name, documents, skipped, sha256, problem, first_skipped), passages.to_record()
