"""Searching a corpus: shard by shard, in this process, in several or on a cluster, and on from where a search stopped.

What belongs here: who reads which shard, merging what they found, checkpoints and progress. What does not: one shard's
documents (shards.py), what they hold of the texts (matching.py).
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.files import read_json_if_whole, write_json, write_table
from audit_pipeline.cluster.engine import IN_PROCESS, Engine
from audit_pipeline.errors import AuditError, DataError, TransientError, to_one_line
from audit_pipeline.fetch.rows import Skipped
from audit_pipeline.overlap.index import TextIndex, build_index
from audit_pipeline.overlap.matching import Holder, Matcher
from audit_pipeline.overlap.passages import PassageSet
from audit_pipeline.overlap.rules import OverlapRule
from audit_pipeline.overlap.shards import Shard, ShardedCorpus, digest_of_texts

SEARCH_VERSION = 2
CHECKPOINT_SECONDS = 30.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class ShardReport:
    """A shard that was read: its documents and characters, rows that could not be used, the sha256 of its bytes.

    ``problem``: why the rest of it could not be read; None where all of it was. ``first_skipped``: the first row that
    could not be used, and why.
    """

    number: int
    name: str
    documents: int
    characters: int
    skipped: int
    sha256: str | None
    problem: str | None = None
    first_skipped: str | None = None


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is; ``characters`` are those read in this run, which began ``seconds`` ago."""

    shards_done: int
    shards_total: int
    bytes_done: int
    bytes_total: int
    characters: int
    seconds: float

    @property
    def in_words(self) -> str:
        rate = self.characters / 1e6 / self.seconds if self.seconds else 0.0
        share = self.bytes_done / self.bytes_total if self.bytes_total else 0.0
        left = f", about {self.seconds * (1 - share) / share:,.0f} s left" if 0 < share < 1 else ""
        return (
            f"{self.shards_done:,} of {self.shards_total:,} shards, {self.bytes_done / 1e6:,.0f} of "
            f"{self.bytes_total / 1e6:,.0f} MB, {rate:,.1f} million characters/s{left}"
        )


@dataclass(eq=False)
class SearchResult:
    """What a corpus holds of the texts of ``index``, and what was read of it.

    ``holders``: the folder that lists, shard by shard, the documents that hold something; None where it was not asked.
    """

    corpus: ShardedCorpus
    rule: OverlapRule
    index: TextIndex
    passages: PassageSet
    reports: dict[int, ShardReport] = field(default_factory=dict)
    holders: Path | None = None

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


Report = Callable[[SearchProgress], None]
ShardFindings = tuple[ShardReport, Mapping[str, Any]]


@dataclass(frozen=True)
class SearchOptions:
    """How a search runs: in so many processes, or on the machines of a cluster; where it keeps how far it is.

    ``holders``: a folder for the documents that hold something, a Parquet file a shard, in a folder of this search;
    None: they are not listed.
    """

    processes: int = 1
    engine: Engine = IN_PROCESS
    checkpoint: Path | None = None
    holders: Path | None = None


ALONE = SearchOptions()


def search_corpus(
    texts: Sequence[str],
    corpus: ShardedCorpus,
    rule: OverlapRule,
    options: SearchOptions = ALONE,
    *,
    exact: bool = False,
    on_progress: Report | None = None,
) -> SearchResult:
    """Find every passage of ``rule.n`` words and more of ``texts`` that stands in a document of the corpus.

    A search that was stopped goes on with the shards that its checkpoint lacks. A shard that cannot be read, or not to
    its end, is reported, and the others go on. Raises DataError where no text is long enough, and where no shard can
    be read at all.
    """
    index = build_index(texts, rule.n, exact=exact)
    result = SearchResult(corpus, rule, index, PassageSet(len(index.runs)))
    key = digest(digest_of_texts(texts), rule.n, exact, corpus.stamp, SEARCH_VERSION)
    if options.holders is not None:
        options = replace(options, holders=options.holders / key[:16])
        result.holders = options.holders
    _restore(result, options, key)
    remaining = [number for number in corpus.selected if number not in result.reports]
    meter = _Meter(result, on_progress)
    saved_at = time.monotonic()
    for report, found in _run_shards(index, corpus.shards, remaining, options, meter.tick):
        result.passages.merge_record(found)
        result.reports[report.number] = report
        meter.tick(0)
        if options.checkpoint is not None and time.monotonic() - saved_at >= CHECKPOINT_SECONDS:
            _save(result, options.checkpoint, key)
            saved_at = time.monotonic()
    if options.checkpoint is not None and remaining:
        _save(result, options.checkpoint, key)
    meter.tick(0, last=True)
    if not result.documents:
        reasons = (report.problem or report.first_skipped for report in result.reports.values())
        first = next((reason for reason in reasons if reason is not None), "it is empty")
        raise DataError(f"the corpus {corpus.name}: no document can be read; {first}")
    return result


class _Meter:
    """Adds up what is read, and reports it now and then."""

    def __init__(self, result: SearchResult, on_progress: Report | None) -> None:
        self._result, self._on_progress = result, on_progress
        self._begin = self._reported_at = time.monotonic()
        self._done_before = set(result.reports)
        self._characters = 0

    def tick(self, characters: int, *, last: bool = False) -> None:
        """So many characters more have been read."""
        self._characters += characters
        now = time.monotonic()
        if self._on_progress is None or (now - self._reported_at < 1.0 and not last):
            return
        self._reported_at = now
        shards, selected = self._result.corpus.shards, self._result.corpus.selected
        size = {number: shards[number].bytes or 0 for number in selected}
        finished = sum(size[number] for number in self._result.reports if number in size)
        before = sum(size[number] for number in self._done_before if number in size)
        # Of shards that are being read only the characters are known, which are about as many as bytes.
        done = min(max(finished, before + self._characters), sum(size.values()))
        self._on_progress(
            SearchProgress(
                len(self._result.reports), len(selected), done, sum(size.values()), self._characters, now - self._begin
            )
        )


def search_shard(
    index: TextIndex, number: int, shard: Shard, tick: Callable[[int], None], holders: Path | None = None
) -> ShardFindings:
    """What one shard holds of the texts.

    ``tick`` gets the characters of each block, a file in ``holders`` the documents that hold something.
    """
    found, matcher = PassageSet(len(index.runs)), Matcher(index, lists_holders=holders is not None)
    listed: list[Holder] = []
    documents = characters = skipped = counted = 0
    problem = first_skipped = None
    sha256 = shard.digest()
    try:
        for document in shard.documents():
            if isinstance(document, Skipped):
                skipped += 1
                first_skipped = first_skipped or f"{document.location}: {document.reason}"
                continue
            documents += 1
            characters += len(document.text)
            for matches in matcher.add(document):
                found.add_matches(matches, number)
                listed += matches.holders or ()
                tick(characters - counted)
                counted = characters
    except TransientError:
        # Not the shard's fault: the next search reads it again.
        raise
    except AuditError as error:
        problem = to_one_line(error)
    if problem is None and shard.has_changed():
        problem = f"{shard.name} has changed since the search began: run it again when nothing writes there"
    for matches in matcher.flush():
        found.add_matches(matches, number)
        listed += matches.holders or ()
    tick(characters - counted)
    if holders is not None:
        _write_holders(holders_file(holders, number), shard.name, listed)
    report = ShardReport(number, shard.name, documents, characters, skipped, sha256, problem, first_skipped)
    return report, found.to_record()


HOLDERS = pa.schema(
    [
        ("shard", pa.string()),
        ("row", pa.int64()),
        ("document", pa.string()),
        ("url", pa.string()),
        ("longest", pa.int64()),
        ("texts", pa.int64()),
    ]
)
"""Of a document that holds passages: where it is, the words of its longest passage, of how many texts it holds some."""


def holders_file(folder: Path, number: int) -> Path:
    """Where the documents of a shard that hold something are listed."""
    return folder / f"{number:06d}.parquet"


def _write_holders(path: Path, shard: str, holders: Sequence[Holder]) -> None:
    rows = [
        {
            "shard": shard,
            "row": holder.row,
            "document": holder.document,
            "url": holder.url,
            "longest": holder.longest,
            "texts": holder.texts,
        }
        for holder in holders
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, pa.Table.from_pylist(rows, HOLDERS))


def _run_shards(
    index: TextIndex,
    shards: Sequence[Shard],
    numbers: Sequence[int],
    options: SearchOptions,
    tick: Callable[[int], None],
) -> Iterator[ShardFindings]:
    """What each of these shards holds, in the order in which they are done."""
    if options.engine.name == "ray" and numbers:
        yield from _run_on_cluster(index, shards, numbers, options)
    elif options.processes > 1 and len(numbers) > 1:
        yield from _run_in_processes(index, shards, numbers, options, tick)
    else:
        for number in numbers:
            yield search_shard(index, number, shards[number], tick, options.holders)


_index: TextIndex | None = None
_read: Any = None
"""Of a worker process: the index, and a counter of the characters that all have read."""


def _start_worker(folder: Path, read: Any) -> None:
    global _index, _read
    _index, _read = TextIndex.load(folder), read


def _search_in_worker(number: int, shard: Shard, holders: Path | None) -> ShardFindings:
    if _index is None:
        raise TypeError("this process was not started as a worker")

    def tick(characters: int) -> None:
        with _read.get_lock():
            _read.value += characters

    return search_shard(_index, number, shard, tick, holders)


def _run_in_processes(
    index: TextIndex,
    shards: Sequence[Shard],
    numbers: Sequence[int],
    options: SearchOptions,
    tick: Callable[[int], None],
) -> Iterator[ShardFindings]:
    # Not forked: this process has threads (Arrow's among them), whose locks a copy would inherit.
    context = multiprocessing.get_context("spawn")
    read, ticked = context.Value("q", 0), 0
    with tempfile.TemporaryDirectory(prefix="corpus-audit-overlap-") as folder:
        index.save(Path(folder))
        pool = ProcessPoolExecutor(min(options.processes, len(numbers)), context, _start_worker, (Path(folder), read))
        try:
            waiting: set[Future[ShardFindings]] = {
                pool.submit(_search_in_worker, number, shards[number], options.holders) for number in numbers
            }
            while waiting:
                done, waiting = wait(waiting, _POLL_SECONDS, return_when="FIRST_COMPLETED")
                tick(read.value - ticked)
                ticked = read.value
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise DataError(
                "a process that was reading the corpus was ended from outside (out of memory?): use fewer --processes; "
                "run the same again: it goes on with the shards that are left"
            ) from error
        except BaseException:
            # A shard may take an hour, and who stops a search does not wait for its end.
            for process in context.active_children():
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _run_on_cluster(
    index: TextIndex, shards: Sequence[Shard], numbers: Sequence[int], options: SearchOptions
) -> Iterator[ShardFindings]:
    """On the machines of a Ray cluster, a shard a task. The files must lie at the same paths on each."""
    # Here and not above: Ray is an extra.
    from audit_pipeline.cluster.ray_pool import iterate_task_results  # noqa: PLC0415

    tasks = [(number, shards[number], options.holders) for number in numbers]
    yield from iterate_task_results(options.engine, _search_as_task, index, tasks)


def _search_as_task(index: TextIndex, number: int, shard: Shard, holders: Path | None) -> ShardFindings:
    return search_shard(index, number, shard, lambda characters: None, holders)


def _save(result: SearchResult, checkpoint: Path, key: str) -> None:
    reports = [asdict(report) for report in result.reports.values()]
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    write_json(checkpoint, {"key": key, "shards": reports, "found": result.passages.to_record()})


def _restore(result: SearchResult, options: SearchOptions, key: str) -> None:
    """Take what an earlier search of the same texts in the same corpus found. A checkpoint only saves time: one that
    cannot be used, or whose documents were not listed and are to be, is passed over."""
    record = None if options.checkpoint is None else read_json_if_whole(options.checkpoint)
    if record is None or record.get("key") != key:
        return
    reports = [ShardReport(**fields) for fields in record["shards"]]
    folder = options.holders
    if folder is not None and not all(holders_file(folder, report.number).exists() for report in reports):
        return
    result.passages.merge_record(record["found"])
    result.reports |= {report.number: report for report in reports}
