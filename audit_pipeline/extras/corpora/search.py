"""The search of a corpus: shard by shard, in several processes, and resumable.

A shard is a file or a part of a data set. A .txt file is one document here, not one document per line, because a
passage can span lines. A larger file than 64 MiB is read in parts of that size, which end at line ends.
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
from audit_pipeline.extras.corpora.config import ReferenceEntry, load_references
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
# Names of folders and entries of the ledger contain the corpus name and a benchmark name.
_MAX_NAME_LENGTH = 100
_MAX_CELL_LENGTH = 1000


@dataclass(frozen=True)
class CorpusShard:
    """A file of a corpus, or all documents of a source.

    Attributes:
        stamp: A text that changes with the content.
        bytes: Size on disk, or None if it is unknown.
        path: Path of a local file.
        address: Address of a file on the hub.
        source: Name of a source.
    """

    name: str
    stamp: str
    bytes: int | None
    path: Path | None = None
    address: str | None = None
    source: str | None = None
    text_column: str | None = None

    def documents(self) -> Iterator[CorpusDocument | Skipped]:
        """Yield the documents and the skipped rows in order.

        Raises:
            AuditError: If the shard is unreadable.
        """
        if self.bytes == 0:
            return
        for row in self._rows():
            if isinstance(row, Skipped):
                # An empty document cannot contain a passage, so it is not reported.
                if not row.reason.endswith(EMPTY):
                    yield row
                continue
            identity: object = row.location
            for name in _IDENTITIES:
                if row.values.get(name) is not None:
                    identity = row.values[name]
                    break
            url = row.values.get(_URL)
            if url is not None:
                url = _to_cell(url)
            yield CorpusDocument(row.index, _to_cell(identity), url, row.text)

    def digest(self) -> str | None:
        """Return the sha256 of a local file, or None if the shard is no local file or is unreadable."""
        if self.path is None:
            return None
        try:
            return compute_file_digest(self.path)
        except OSError:
            return None

    def has_changed(self) -> bool:
        """Return True if the file has changed since the corpus was listed."""
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
        further_columns = (*_IDENTITIES, _URL)
        # The rows are not held in memory, because a compressed file can unpack to any size.
        return open_texts(self.path, self.text_column, further_columns, name=self.name).entries()


@dataclass(frozen=True)
class ShardedCorpus:
    """A corpus with its shards.

    Attributes:
        selected: Numbers of the shards that the search reads.
        ignored: Names of the entries in the folder that are no shards.
    """

    name: str
    shards: Sequence[CorpusShard]
    selected: Sequence[int]
    ignored: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """Return True if the search reads all shards."""
        return len(self.selected) == len(self.shards)

    @property
    def stamp(self) -> str:
        """Compute a digest of the names, stamps and text columns of all shards."""
        return digest([[shard.name, shard.stamp, shard.text_column] for shard in self.shards])[:16]


def open_sharded_corpus(corpus: str, text_column: str | None = None, only: str | None = None) -> ShardedCorpus:
    """Open a corpus of config/references.yaml, or the files at a path.

    Args:
        corpus: The name or the path of the corpus.
        only: A pattern for the names of the shards that the search reads.

    Raises:
        AuditError: If the corpus does not exist, cannot be listed, or has no matching shard.
    """
    references = load_references()
    path = Path(corpus).expanduser()
    if corpus in references.names:
        name = corpus
        shards, ignored = _list_configured_shards(references.get_entry(corpus), text_column)
    else:
        name = os.path.basename(os.path.realpath(path))
        if name in references.names:
            raise ConfigError(
                f"{corpus} has the same name as the corpus {name} of config/references.yaml: rename one of the two"
            )
        if not os.path.lexists(path):
            names = ", ".join(references.names)
            raise ConfigError(f"{corpus} is neither a file or folder nor a corpus of config/references.yaml ({names})")
        shards, ignored = _list_shards(path, text_column)
    selected = [number for number, shard in enumerate(shards) if only is None or fnmatch.fnmatchcase(shard.name, only)]
    if not selected:
        raise DataError(
            f"none of the {len(shards):,} shards of {corpus} matches {only!r}; the first shard is {shards[0].name}"
        )
    if "|" in name or len(to_path_segment(name)) > _MAX_NAME_LENGTH:
        raise ConfigError(
            f"{name[:80]!r} cannot name a corpus in tables and folders: add the corpus to references.yaml with a name"
        )
    return ShardedCorpus(name, shards, selected, ignored)


def _list_configured_shards(entry: ReferenceEntry, text_column: str | None) -> tuple[list[CorpusShard], list[str]]:
    """List the shards of a configured corpus and the ignored entries of its folder."""
    column = text_column or entry.text_column
    if entry.path is not None:
        return _list_shards(entry.path, column)
    if entry.package is not None:
        stamp = corpus_from_source(entry.package, DataPaths.from_environment()).digest
        return [CorpusShard(entry.package, stamp, None, source=entry.package)], []
    hub = str(entry.hub)
    commit, files = list_hub_files(hub, entry.files or (), entry.revision)
    shards: list[CorpusShard] = []
    for file in files:
        address = build_hub_address(hub, commit, file)
        shards.append(CorpusShard(file, commit, None, address=address, text_column=column))
    return shards, []


def _list_shards(path: Path, text_column: str | None) -> tuple[list[CorpusShard], list[str]]:
    """List the files at a path as shards, and the ignored entries."""
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
    """Convert a value to a short text that a table can store."""
    return str(value)[:_MAX_CELL_LENGTH].encode("utf-8", "replace").decode()


def _read_whole_text(path: Path, name: str, packed: str) -> Iterator[TextRow | Skipped]:
    with open_bytes(InputFile(path, name, ".txt", packed=packed)) as binary:
        number = 0
        rest = b""
        while piece := binary.read(LINE_LIMIT - len(rest)):
            content = rest + piece
            cut = len(content)
            if len(content) >= LINE_LIMIT:
                cut = content.rfind(b"\n") + 1 or content.rfind(b" ") + 1 or cut
            rest = content[cut:]
            location = f"{name}, part {number + 1}"
            encoding = "utf-8"
            if number == 0:
                encoding = "utf-8-sig"
                if not rest:
                    location = name
            try:
                yield TextRow(location, number, content[:cut].decode(encoding), {})
            except UnicodeDecodeError as error:
                yield Skipped(location, number, f"invalid UTF-8 at byte {error.start}")
            number += 1
    if rest:
        yield TextRow(f"{name}, part {number + 1}", number, rest.decode("utf-8", "replace"), {})


SEARCH_VERSION = 5
CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class ShardReport:
    """The result of reading a shard. Checkpoints contain its fields.

    Attributes:
        documents: Number of documents.
        skipped: Number of rows that could not be used.
        sha256: Checksum of a local file.
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
        sets: Number of each text's test set. Empty if all texts belong to one test set.
    """

    texts: Sequence[str]
    borders: Sequence[int]
    sets: Sequence[int] = ()

    def split_into_parts(self) -> tuple[list[str], Places, Places]:
        """Split the texts into questions and answers, which the rule of evidence searches for separately.

        Returns:
            The parts, the text of each part, and the index of the answer to each part or -1. The latter two are int64
            arrays of shape (n_parts,).
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
        """Return True if all shards were read to their ends and no row or other entry was skipped."""
        has_skipped = any(report.skipped for report in self.reports.values())
        return self.whole_shards == len(self.corpus.shards) and not has_skipped and not self.corpus.ignored

    @property
    def document_count(self) -> int:
        return sum(report.documents for report in self.reports.values())

    @property
    def digest(self) -> str:
        """Compute a digest of the corpus from the name and the sha256 of each shard."""
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
    """Find all passages of the texts in the corpus that have at least ``rule.n`` words.

    A shard that cannot be read to its end is reported, and the search continues with the other shards.

    Args:
        checkpoint: File with the progress. A stopped search resumes with the remaining shards.
        on_progress: Callback with a description of the progress.

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
            "a process of the search was killed, maybe for lack of memory: run the command again with fewer "
            "--processes; it resumes with the remaining shards"
        ) from error
    if not result.document_count:
        raise DataError(f"the corpus {corpus.name}: no document can be read; {_find_first_problem(result)}")
    return result


def _resume(result: SearchResult, checkpoint: Path, key: str) -> None:
    """Load the checkpoint if it is readable and belongs to this search. A checkpoint only saves time."""
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
    return "it is empty"


class _SearchProgress:
    """The progress of a search since its start or its last checkpoint."""

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
    """Return the empty result of a search, with the index of the texts.

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
    index = build_index(words, first_word, rule.n, rule.shortest)
    evidence = None
    if rule.measure == "evidence":
        # Equal texts of a test set are one item.
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
        The report, and the passages as :meth:`PassageSet.to_record` returns them. They can cross a process border.
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
        # The shard has no report, so the next search reads it again.
        raise
    except AuditError as error:
        problem = to_one_line(error)
    if problem is None and shard.has_changed():
        problem = f"{shard.name} has changed since the search began: run the search again when the file is complete"
    for matches in matcher.flush():
        passages.merge(matches)
    return ShardReport(number, shard.name, documents, skipped, sha256, problem, first_skipped), passages.to_record()
