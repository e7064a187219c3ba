"""Searching a corpus: shard by shard, in several processes, and on from where a search stopped."""

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
from audit_pipeline.extras.corpora.evidence import EvidenceIndex, build_evidence_index
from audit_pipeline.extras.corpora.index import TextIndex, build_index
from audit_pipeline.extras.corpora.matching import Matcher
from audit_pipeline.extras.corpora.passages import PassageSet
from audit_pipeline.extras.corpora.rules import OverlapRule
from audit_pipeline.extras.corpora.shards import Shard, ShardedCorpus
from audit_pipeline.extras.corpora.words import Places, split_texts
from audit_pipeline.readers.rows import Skipped
from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.tables import digest, text_sha256

SEARCH_VERSION = 3
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class ShardReport:
    """A shard that was read: its documents, rows that could not be used, the sha256 of its bytes.

    ``problem``: why the rest of it could not be read; None where all of it was. ``first_skipped``: the first row that
    could not be used, and why.
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
    """The texts that are looked for, each with the place at which its answer begins (0: it has none), and the number of
    its test set (empty: all are of one)."""

    texts: Sequence[str]
    borders: Sequence[int]
    sets: Sequence[int] = ()

    def split(self) -> tuple[list[str], Places, Places]:
        """Return the parts that are looked for by the rule of evidence, the item of each, and the part that is the
        answer to each (-1: none)."""
        parts: list[str] = []
        items: list[int] = []
        answers: list[int] = []
        for item, (text, border) in enumerate(zip(self.texts, self.borders, strict=True)):
            has_answer = bool(text[:border].strip() and text[border:].strip())
            parts += [text[:border], text[border:]] if has_answer else [text]
            items += [item] * (1 + has_answer)
            answers += [len(parts) - 1, -1] if has_answer else [-1]
        return parts, np.array(items, np.int64), np.array(answers, np.int64)


@dataclass(eq=False)
class SearchResult:
    """What a corpus holds of the texts of ``index`` (``parts``, each of one of ``items``), and what was read of it."""

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
        """How many shards were read to their ends."""
        return sum(report.problem is None for report in self.reports.values())

    @property
    def is_complete(self) -> bool:
        """Whether every shard was read to its end, every row could be used, and nothing else lies in the corpus."""
        skipped = any(report.skipped for report in self.reports.values())
        return self.whole_shards == len(self.corpus.shards) and not skipped and not self.corpus.ignored

    @property
    def documents(self) -> int:
        return sum(report.documents for report in self.reports.values())

    @property
    def digest(self) -> str:
        """Digest of the corpus as it was read: of every shard its name and the sha256 of its bytes."""
        known = {number: report.sha256 for number, report in self.reports.items()}
        return digest(
            [[shard.name, known.get(number) or shard.stamp] for number, shard in enumerate(self.corpus.shards)]
        )[:16]


def search_corpus(
    audited: AuditedTexts | Sequence[str],
    corpus: ShardedCorpus,
    rule: OverlapRule,
    *,
    processes: int = 1,
    checkpoint: Path | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> SearchResult:
    """Find every passage of ``rule.n`` words and more of the texts that is in a document of the corpus.

    The file ``checkpoint`` keeps how far it is: a search that was stopped goes on with the shards that it lacks. A
    shard that cannot be read, or not to its end, is reported, and the others go on. ``on_progress`` gets how far it
    is, in words. Raises DataError where no text is
    long enough, and where no shard can be read at all.
    """
    result = prepare_search(audited, corpus, rule)
    index, evidence = result.index, result.evidence
    key = digest([text_sha256(text) for text in result.parts], rule.n, rule.measure, corpus.stamp, SEARCH_VERSION)
    # A checkpoint only saves time: that of another search, or one that cannot be read, is not used.
    record = None if checkpoint is None else read_json_if_whole(checkpoint)
    if record is not None and record.get("key") == key:
        result.passages.merge_record(record["found"])
        result.reports = {fields["number"]: ShardReport(**fields) for fields in record["shards"]}
    sizes = {number: corpus.shards[number].bytes or 0 for number in corpus.selected}
    bytes_before = sum(sizes.get(number, 0) for number in result.reports)
    remaining = [number for number in corpus.selected if number not in result.reports]
    began = saved_at = reported_at = time.monotonic()
    run = joblib.Parallel(max(1, min(processes, len(remaining))), return_as="generator_unordered")
    tasks = (joblib.delayed(search_shard)(index, number, corpus.shards[number], evidence) for number in remaining)
    try:
        with closing(run(tasks)) as found:
            for report, passages in found:
                result.passages.merge_record(passages)
                result.reports[report.number] = report
                is_last = len(result.reports) == len(corpus.selected)
                now = time.monotonic()
                if checkpoint is not None and (is_last or now - saved_at >= CHECKPOINT_SECONDS):
                    checkpoint.parent.mkdir(parents=True, exist_ok=True)
                    shards = [asdict(report) for report in result.reports.values()]
                    write_json(checkpoint, {"key": key, "shards": shards, "found": result.passages.to_record()})
                    saved_at = now
                if on_progress is not None and (is_last or now - reported_at >= 1.0):
                    done, total = sum(sizes.get(number, 0) for number in result.reports), sum(sizes.values())
                    shards_done = f"{len(result.reports):,} of {len(corpus.selected):,} shards"
                    words = f"{shards_done}, {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
                    if total > done > bytes_before:
                        words += f", about {(now - began) * (total - done) / (done - bytes_before):,.0f} s left"
                    on_progress(words)
                    reported_at = now
    except BrokenProcessPool as error:
        raise DataError(
            "a process that was reading the corpus was ended from outside (out of memory?): use fewer --processes; "
            "run the same again: it goes on with the shards that are left"
        ) from error
    if not result.documents:
        reasons = (report.problem or report.first_skipped for report in result.reports.values())
        first = next((reason for reason in reasons if reason is not None), "it is empty")
        raise DataError(f"the corpus {corpus.name}: no document can be read; {first}")
    return result


def prepare_search(audited: AuditedTexts | Sequence[str], corpus: ShardedCorpus, rule: OverlapRule) -> SearchResult:
    """Return what a search for the texts begins with; raises DataError where no text is long enough."""
    if not isinstance(audited, AuditedTexts):
        audited = AuditedTexts(audited, [0] * len(audited))
    parts, items = audited.texts, np.arange(len(audited.texts))
    if rule.measure == "evidence":
        parts, items, answers = audited.split()
    words, first_word = split_texts(parts)
    index = build_index(words, first_word, rule.n, rule.shortest)
    evidence = None
    if rule.measure == "evidence":
        # The same text in a test set twice is one item.
        numbers: dict[str, int] = {}
        same = np.array([numbers.setdefault(text, len(numbers)) for text in audited.texts], np.int64)
        sets = np.array(audited.sets or [0] * len(same), np.int64)
        evidence = build_evidence_index(parts, words, index, same[items], sets[items], answers, rule.share)
    found = PassageSet(len(index.runs), 0 if evidence is None else len(evidence.words))
    return SearchResult(corpus, rule, audited, parts, items, index, evidence, found)


def search_shard(
    index: TextIndex, number: int, shard: Shard, evidence: EvidenceIndex | None = None
) -> tuple[ShardReport, Mapping[str, Any]]:
    """Return what one shard holds of the texts, as :meth:`PassageSet.to_record` gives it."""
    found = PassageSet(len(index.runs), 0 if evidence is None else len(evidence.words))
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
                found.merge(matches)
    except TransientError:
        # Not the shard's fault: the next search reads it again.
        raise
    except AuditError as error:
        problem = to_one_line(error)
    if problem is None and shard.has_changed():
        problem = f"{shard.name} has changed since the search began: run it again when nothing writes there"
    for matches in matcher.flush():
        found.merge(matches)
    return ShardReport(number, shard.name, documents, skipped, sha256, problem, first_skipped), found.to_record()
