"""Searching a corpus: shard by shard, in several processes, and on from where a search stopped.

A shard is a file or a part of a data set. A .txt file is one document here, and not one a line: a passage may run over
lines. One of more than 64 MiB is read in parts of that size, cut at line ends.
"""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from audit_pipeline.errors import AuditError, ConfigError, DataError, TransientError, to_one_line
from audit_pipeline.extras.corpora.config import load_references
from audit_pipeline.extras.corpora.corpus_stream import (
    HubStream,
    build_hub_address,
    corpus_from_source,
    list_corpus_files,
    list_hub_files,
    name_corpus_file,
)
from audit_pipeline.extras.corpora.evidence_rule import EvidenceIndex, build_evidence_index
from audit_pipeline.extras.corpora.matching import CorpusDocument, Matcher
from audit_pipeline.extras.corpora.rules import OverlapRule
from audit_pipeline.extras.corpora.text_index import PassageSet, TextIndex, build_index
from audit_pipeline.extras.corpora.word_hashes import Places, hash_words_of_texts
from audit_pipeline.readers.file_bytes import LINE_LIMIT, InputFile, open_bytes
from audit_pipeline.readers.formats import compute_file_digest, find_suffix, open_texts
from audit_pipeline.readers.text_rows import EMPTY, Skipped, TextRow
from audit_pipeline.store.files import read_json_if_whole, write_json
from audit_pipeline.store.paths import DataPaths, to_path_segment
from audit_pipeline.tables import digest, text_sha256

_IDENTITIES = ("id", "document_id", "doc_id", "blob_id", "warc_record_id", "sha256", "sha1")
_URL = "url"
# Folders of tables and lines of the ledger have it next to a benchmark's name.
_LONGEST_NAME = 100
_LONGEST_IDENTITY = 1000


@dataclass(frozen=True)
class CorpusShard:
    """One file of a corpus, or all documents of a source. ``stamp``: changes with what lies there. ``bytes``: its size
    on disk; None where that is not known.
    """

    name: str
    stamp: str
    bytes: int | None
    path: Path | None = None
    address: str | None = None
    source: str | None = None
    text_column: str | None = None

    def documents(self) -> Iterator[CorpusDocument | Skipped]:
        """Its documents in their order; raises UnreadableFileError, or another AuditError, where it cannot be read."""
        if self.bytes == 0:
            return
        for row in self._rows():
            if isinstance(row, Skipped):
                # An empty document holds nothing that would be missed.
                if not row.reason.endswith(EMPTY):
                    yield row
                continue
            identities = (row.values.get(name) for name in _IDENTITIES)
            identity = next((value for value in identities if value is not None), row.location)
            url = row.values.get(_URL)
            yield CorpusDocument(row.index, _to_cell(identity), None if url is None else _to_cell(url), row.text)

    def digest(self) -> str | None:
        """Return the sha256 of its bytes; of what is not a file here None: its stamp says what it is."""
        try:
            return None if self.path is None else compute_file_digest(self.path)
        except OSError:
            return None

    def has_changed(self) -> bool:
        """Return whether its file is another one than when the corpus was listed."""
        try:
            return self.path is not None and _build_stamp(self.path.stat()) != self.stamp
        except OSError:
            return True

    def _rows(self) -> Iterator[TextRow | Skipped]:
        if self.address is not None:
            stream = HubStream(self.name, [self.address], self.text_column or "text", None, all_columns=True)
            return iter(stream)
        if self.source is not None:
            return iter(corpus_from_source(self.source, DataPaths.from_environment()).open(None))
        assert self.path is not None
        suffix = find_suffix(self.path) or ""
        if suffix.startswith(".txt"):
            return _read_whole_text(self.path, self.name, suffix.removeprefix(".txt"))
        also = (*_IDENTITIES, _URL)
        # Nothing is kept of what a file unpacks to: it may be any amount.
        return open_texts(self.path, self.text_column, also, name=self.name).entries()


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus by its name, with all of its shards, and those that are to be read, by their numbers.

    ``ignored``: what else lies in its folder and is not read, by name.
    """

    name: str
    shards: Sequence[CorpusShard]
    selected: Sequence[int]
    ignored: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of it is to be read."""
        return len(self.selected) == len(self.shards)

    @property
    def stamp(self) -> str:
        """Changes with the names of its shards, what lies there, and the column that is read."""
        return digest([[shard.name, shard.stamp, shard.text_column] for shard in self.shards])[:16]


def open_sharded_corpus(corpus: str, text_column: str | None = None, only: str | None = None) -> ShardedCorpus:
    """Return a corpus of config/references.yaml by its name, or the files at a path.

    ``only``: the shards whose names match this pattern are to be read, the others are left unread. Raises an AuditError
    where there is no such corpus, it cannot be listed, or no shard matches.
    """
    references, path = load_references(), Path(corpus).expanduser()
    name = corpus if corpus in references.names else os.path.basename(os.path.realpath(path))
    if corpus in references.names:
        entry = references.get_entry(corpus)
        column, ignored = text_column or entry.text_column, list[str]()
        if entry.path is not None:
            shards, ignored = _list_shards(entry.path, column)
        elif entry.package is not None:
            stamp = corpus_from_source(entry.package, DataPaths.from_environment()).digest
            shards = [CorpusShard(entry.package, stamp, None, source=entry.package)]
        else:
            commit, files = list_hub_files(str(entry.hub), entry.files or (), entry.revision)
            shards = [
                CorpusShard(
                    file, commit, None, address=build_hub_address(str(entry.hub), commit, file), text_column=column
                )
                for file in files
            ]
    elif name in references.names:
        raise ConfigError(f"{corpus} is called as the corpus {name} of config/references.yaml: rename one of the two")
    elif os.path.lexists(path):
        shards, ignored = _list_shards(path, text_column)
    else:
        names = ", ".join(references.names)
        raise ConfigError(f"{corpus} is neither a file or folder nor a corpus of config/references.yaml ({names})")
    selected = [number for number, shard in enumerate(shards) if only is None or fnmatch.fnmatchcase(shard.name, only)]
    if not selected:
        raise DataError(f"none of the {len(shards):,} shards of {corpus} is called {only}; the first: {shards[0].name}")
    if "|" in name or len(to_path_segment(name)) > _LONGEST_NAME:
        raise ConfigError(f"{name[:80]!r} cannot name a corpus in tables and folders: give it one in references.yaml")
    return ShardedCorpus(name, shards, selected, ignored)


def _list_shards(path: Path, text_column: str | None) -> tuple[list[CorpusShard], list[str]]:
    """The files at a path as shards, and what else lies there."""
    shards = []
    files, ignored = list_corpus_files(path)
    for file in files:
        name = name_corpus_file(file, path)
        status = file.stat()
        shards.append(
            CorpusShard(name, _build_stamp(status), status.st_size, path=file.absolute(), text_column=text_column)
        )
    return shards, ignored


def _build_stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


def _to_cell(value: object) -> str:
    """As tables can hold it."""
    return str(value)[:_LONGEST_IDENTITY].encode("utf-8", "replace").decode()


def _read_whole_text(path: Path, name: str, packed: str) -> Iterator[TextRow | Skipped]:
    with open_bytes(InputFile(path, name, ".txt", packed=packed)) as binary:
        number, kept = 0, b""
        while piece := binary.read(LINE_LIMIT - len(kept)):
            content = kept + piece
            cut = len(content)
            if len(content) >= LINE_LIMIT:
                cut = content.rfind(b"\n") + 1 or content.rfind(b" ") + 1 or cut
            content, kept = content[:cut], content[cut:]
            location = name if number == 0 and not kept else f"{name}, part {number + 1}"
            try:
                yield TextRow(location, number, content.decode("utf-8-sig" if number == 0 else "utf-8"), {})
            except UnicodeDecodeError as error:
                yield Skipped(location, number, f"invalid UTF-8 at byte {error.start}")
            number += 1
    if kept:
        yield TextRow(f"{name}, part {number + 1}", number, kept.decode("utf-8", "replace"), {})


SEARCH_VERSION = 5
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
    its test set (empty: all are of one).
    """

    texts: Sequence[str]
    borders: Sequence[int]
    sets: Sequence[int] = ()

    def split_into_parts(self) -> tuple[list[str], Places, Places]:
        """Return the parts that are looked for by the rule of evidence, the item of each, and the part that is the
        answer to each (-1: none).
        """
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
    def document_count(self) -> int:
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
    if not result.document_count:
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
        parts, items, answers = audited.split_into_parts()
    words, first_word = hash_words_of_texts(parts)
    index = build_index(words, first_word, rule.n, rule.shortest)
    evidence = None
    if rule.measure == "evidence":
        # The same text in a test set twice is one item.
        numbers: dict[str, int] = {}
        same = np.array([numbers.setdefault(text, len(numbers)) for text in audited.texts], np.int64)
        sets = np.array(audited.sets or [0] * len(same), np.int64)
        evidence = build_evidence_index(parts, words, index, same[items], sets[items], answers, rule.share)
    found = _prepare_passages(index, evidence)
    return SearchResult(corpus, rule, audited, parts, items, index, evidence, found)


def _prepare_passages(index: TextIndex, evidence: EvidenceIndex | None) -> PassageSet:
    if evidence is None:
        return PassageSet(len(index.runs))
    return PassageSet(len(index.runs), len(evidence.words), evidence.share)


def search_shard(
    index: TextIndex, number: int, shard: CorpusShard, evidence: EvidenceIndex | None = None
) -> tuple[ShardReport, Mapping[str, Any]]:
    """Return what one shard holds of the texts, as :meth:`PassageSet.to_record` gives it."""
    found = _prepare_passages(index, evidence)
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
