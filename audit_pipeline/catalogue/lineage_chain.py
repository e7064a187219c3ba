"""The chain of lineage rows: each carries the digest of the row before, so a row that was removed is missed.

What belongs here: linking a new row to the last one, the record of rows that this program removed itself, and finding
where a chain is broken. What does not: the other columns of a row (lineage.py), reading many rows (warehouse/build.py),
digests (integrity.py).

A writer takes the lock of the head (lineage/head.json, which names the last row and counts them), announces its row
there by digest and file, writes the row, and then names it as the last. A process that was killed in between leaves the
announcement: the next writer looks for the announced row in its file, and links to it where it came, to the row before
where it did not. So a kill never breaks the chain, and a row that was once named as the last is missed for ever.

Rows that `forget` removes, and those that a second try of the same run replaces, are withdrawn: their digests and
links, which name nothing, are kept in lineage/withdrawn.json, and their number is reported. Like all digests without a
signature the chain does not stop somebody who writes every later row anew; a dated copy of the last digest does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from audit_pipeline.catalogue.contracts import LINEAGE
from audit_pipeline.catalogue.files import (
    move_into_place,
    read_json_if_whole,
    read_rows,
    table_from_rows,
    write_json,
    write_table,
)
from audit_pipeline.catalogue.integrity import PREVIOUS_SHA256, ROW_SHA256, is_row_as_written, with_row_sha256
from audit_pipeline.catalogue.locks import hold_lock
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import refresh_file, remove
from audit_pipeline.errors import DataError

Withdrawal = Literal["forgotten", "replaced"]
"""Why a row was removed: `forget` took it, or its run wrote it again."""

_LOCK_SECONDS = 600.0
_NAMED = 3


@dataclass(frozen=True)
class ChainRecord:
    """What is kept beside the rows; a pack carries it as it is. It names no benchmark and no model.

    ``last_sha256``: the last row; None where there is no chain. ``rows``: how many there are up to it, the withdrawn
    ones included. ``announced_sha256``: a row that may have come after it. ``withdrawn``: by reason
    (:data:`Withdrawal`), the digest of each withdrawn row and of the row before it.
    """

    last_sha256: str | None = None
    rows: int = 0
    announced_sha256: str | None = None
    withdrawn: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


def append_to_chain(
    paths: DataPaths, row: Mapping[str, object], path: Path, written: tuple[Path, Path] | None = None
) -> None:
    """Write a lineage row, without its digest so far, to ``path``, linked to the last row of the data folder.

    ``written``: the temporary file that the row explains, and its place. It is moved there before the row is named as
    the last. Where that fails, the row is removed; the head stays as it is, since on a full disk nothing can be
    written. A row that is at ``path`` is withdrawn. Raises HeldError where another process keeps the lock.
    """
    with _hold_head(paths):
        last, rows = _settle_head(paths)
        linked = with_row_sha256({**row, PREVIOUS_SHA256: last})
        refresh_file(path)
        is_new = not path.exists()
        if not is_new:
            _withdraw(paths, [path], "replaced")
        announced = {ROW_SHA256: linked[ROW_SHA256], "file": path.relative_to(paths.root).as_posix()}
        write_json(paths.lineage_head, {ROW_SHA256: last, "rows": rows, "announced": announced})
        try:
            write_table(path, table_from_rows([linked], LINEAGE))
            if written is not None:
                move_into_place(*written)
        except BaseException:
            if is_new and written is not None and written[0].exists():
                remove(path)
            raise
        write_json(paths.lineage_head, {ROW_SHA256: linked[ROW_SHA256], "rows": rows + 1, "announced": None})


def withdraw_rows(paths: DataPaths, files: Sequence[Path], reason: Withdrawal) -> None:
    """Record that the lineage rows in ``files`` are about to be removed; the caller removes them.

    No announcement, which names a file, is left. Raises HeldError where another process keeps the lock.
    """
    with _hold_head(paths):
        _settle_head(paths)
        _withdraw(paths, files, reason)


def read_chain_record(paths: DataPaths) -> ChainRecord:
    """What is kept beside the rows of a data folder; a damaged file of it counts as missing, with a warning."""
    head = _read_newest(paths.lineage_head)
    announced = head.get("announced") or {}
    withdrawn = _read_newest(paths.withdrawn_lineage)
    return ChainRecord(head.get(ROW_SHA256), head.get("rows", 0), announced.get(ROW_SHA256), withdrawn)


def _hold_head(paths: DataPaths) -> AbstractContextManager[None]:
    return hold_lock(paths.lineage_head.with_suffix(".lock"), _LOCK_SECONDS)


def _settle_head(paths: DataPaths) -> tuple[str | None, int]:
    """The digest of the last row, and how many rows there are; the announcement of a killed writer is resolved."""
    head = _read_newest(paths.lineage_head)
    last, rows = head.get(ROW_SHA256), head.get("rows", 0)
    if announced := head.get("announced"):
        file = paths.root / announced["file"]
        refresh_file(file)
        if file.exists() and announced[ROW_SHA256] in {row.get(ROW_SHA256) for row in read_rows(file, label=file.name)}:
            last, rows = announced[ROW_SHA256], rows + 1
        write_json(paths.lineage_head, {ROW_SHA256: last, "rows": rows, "announced": None})
    return last, rows


def _withdraw(paths: DataPaths, files: Iterable[Path], reason: Withdrawal) -> None:
    links: dict[str, str | None] = {}
    for file in files:
        # A row that cannot be read goes without its link: the row after it will say that it is missing.
        with suppress(DataError):
            rows = read_rows(file, label=file.name)
            links |= {row[ROW_SHA256]: row.get(PREVIOUS_SHA256) for row in rows if row.get(ROW_SHA256)}
    if links:
        known = _read_newest(paths.withdrawn_lineage)
        write_json(paths.withdrawn_lineage, {**known, reason: {**known.get(reason, {}), **links}})


def _read_newest(path: Path) -> dict[str, Any]:
    refresh_file(path)
    return read_json_if_whole(path) or {}


@dataclass(frozen=True)
class ChainFindings:
    """What following the chain gave: how many rows are linked and there, how many are of earlier versions and have no
    link, how many were withdrawn, by reason, and in words whatever is not as it should be."""

    linked: int
    earlier: int
    withdrawn: Mapping[str, int]
    problems: tuple[str, ...]


def follow_chain(rows: Iterable[Mapping[str, Any]], record: ChainRecord) -> ChainFindings:
    """Follow the links of all lineage rows of a data folder, given in any order, with the record kept beside them.

    A row is whole, with every column of its file (times as datetimes), or redacted to ``row_sha256`` and
    ``previous_sha256`` (``table`` is missing or None): of that only the links are followed. Whichever linked row was
    removed, changed or linked anew, there is a problem that names it or the row next to it.
    """
    given = list(rows)
    chain = _Chain({row[ROW_SHA256]: row for row in given if row.get(ROW_SHA256)}, record)
    linked = sum(map(chain.is_linked, chain.rows))
    gone = Counter(reason for reason, links in record.withdrawn.items() for digest in links if digest not in chain.rows)
    changed = [row for row in given if row.get("table") is not None and not is_row_as_written(row)]
    problems = [f"{_describe_row(row)} is not as it was written" for row in changed]
    return ChainFindings(linked, len(given) - linked, gone, (*problems, *chain.find_problems()))


def order_chain(rows: Iterable[Mapping[str, Any]], record: ChainRecord) -> dict[str, int]:
    """The place in the chain of every row that leads to the last one, withdrawn rows included, by digest.

    ``rows`` as :func:`follow_chain` takes them. A row without a link, of an earlier version, has no place.
    """
    return _Chain({row[ROW_SHA256]: row for row in rows if row.get(ROW_SHA256)}, record).order()


class _Chain:
    """The links between rows, by digest; those of withdrawn rows are among them."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]], record: ChainRecord) -> None:
        self.rows = rows
        self._previous: dict[str, str | None] = {}
        for links in record.withdrawn.values():
            self._previous |= links
        self._previous |= {digest: row.get(PREVIOUS_SHA256) for digest, row in rows.items()}
        self._followers: dict[str, list[str]] = {}
        for digest, previous in self._previous.items():
            if previous is not None:
                self._followers.setdefault(previous, []).append(digest)
        self._last, self._count = record.last_sha256, record.rows
        if record.announced_sha256 in rows:
            self._last, self._count = record.announced_sha256, record.rows + 1

    def is_linked(self, digest: str) -> bool:
        """Whether a row belongs to a chain; a row of an earlier version does not."""
        return self._previous[digest] is not None or digest in self._followers or digest == self._last

    def order(self) -> dict[str, int]:
        """The place of every digest that the last row's links lead back to."""
        found: list[str] = []
        digest = self._last
        while digest in self._previous and len(found) < len(self._previous):
            found.append(digest)
            digest = self._previous[digest]
        return {digest: place for place, digest in enumerate(reversed(found))}

    def find_problems(self) -> Iterator[str]:
        """In words, whatever keeps the links from being one chain that ends with the last row."""
        missing = self._followers.keys() - self._previous.keys()
        for digest, previous in self._previous.items():
            if previous in missing:
                yield f"the row before {self._name(digest)} is gone"
        for followers in self._followers.values():
            if len(followers) > 1:
                yield f"the same row is before {self._name(*followers)}: one of them was put in, or linked anew"
        unlinked = [digest for digest, previous in self._previous.items() if previous is None]
        starts = list(filter(self.is_linked, unlinked))
        if len(starts) > 1:
            yield f"the chain begins with each of {self._name(*starts)}: its head was lost, or they were linked anew"
        if circle := self._previous.keys() - self._reach([*unlinked, *missing]):
            yield f"the order leads in a circle, through {self._name(*circle)}: rows were linked anew"
        yield from self._find_problem_at_end()
        linked = sum(map(self.is_linked, self._previous))
        if self._last is not None and linked != self._count:
            yield f"{self._count} rows were linked, and {linked} are there or withdrawn"

    def _find_problem_at_end(self) -> Iterator[str]:
        if self._last is None:
            if self._followers:
                yield f"the head of the chain is gone, and maybe rows after {self._name_of_end()}"
        elif self._last not in self._previous:
            yield f"the last row, after {self._name_of_end()}, is gone"
        elif self._last in self._followers:
            yield f"rows come after the one that the head names as the last, {self._name(self._last)}"

    def _reach(self, starts: Sequence[str]) -> set[str]:
        """The digests that following the links forwards leads to, the starts included."""
        reached, waiting = set[str](), [*starts]
        while waiting:
            digest = waiting.pop()
            reached.add(digest)
            waiting += self._followers.get(digest, ())
        return reached

    def _name(self, *digests: str) -> str:
        """The first rows by name, and how many more there are."""
        named = sorted(digests, key=lambda digest: digest not in self.rows)
        shown = [_describe_row(self.rows.get(digest, {ROW_SHA256: digest})) for digest in named[:_NAMED]]
        return ", ".join(shown) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")

    def _name_of_end(self) -> str:
        """The row that was written last of those that no row comes after."""
        ends = [row for digest, row in self.rows.items() if digest not in self._followers and row.get("table")]
        return _describe_row(max(ends, key=lambda row: row["finished_at"])) if ends else "a row without a name"


def _describe_row(row: Mapping[str, Any]) -> str:
    if row.get("table") is None:
        return f"row {row[ROW_SHA256][:12]} (only its link is here)"
    return f"{row['table']} of {row['partition']} (run {row['run_id']}, {row['finished_at']:%Y-%m-%d %H:%M:%S})"
