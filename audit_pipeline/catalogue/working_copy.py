"""A data folder in a bucket, as a folder of this machine that is kept like it: the working copy.

What belongs here: which files of the copy are objects of the bucket, fetching what others have written, and putting
what this machine writes into the bucket. What does not: the bucket's operations (object_store.py), who may write when
(locks.py), writing files (files.py).

A file is put into the bucket before it takes its place in the copy, and deleted there before it goes here: after a kill
in between the bucket is ahead, and the next look brings the copy up to it. Nothing is renamed in the bucket; readers
see an object whole or not at all. The copy can be removed at any time: it is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from filelock import FileLock
from platformdirs import user_cache_path

from audit_pipeline.catalogue.object_store import (
    BeatenError,
    Bucket,
    ObjectTag,
    StoredObject,
    is_bucket_url,
    require_bucket_url,
)

MARKER = ".bucket.json"
"""The file that makes a folder a working copy; it names the bucket."""
LOCKS = "locks"
"""The folder of the bucket's leases; a working copy never fetches it."""
WAREHOUSES = "warehouse"
"""The folder of the bucket's warehouses: warehouse/bucket_copy.py."""
REFRESH_SECONDS = 30.0
"""The longest time after which a command, a step or a sensor lists the bucket again."""

_OF_THIS_MACHINE = (
    "alerts.jsonl",
    "claims",
    "dagster_home",
    "downloads",
    "logs",
    "models/checks",
    "models/converted",
    "models/digests.json",
    "models/tokenizers",
)
_ON_DEMAND = ("token_statistics", WAREHOUSES)
"""Fetched on demand: they are large, and no command needs all of them."""

_NOTES = ".working_copy.sqlite"
_REQUESTS_AT_ONCE = 16


@dataclass(frozen=True)
class _Note:
    """Which object a file of the copy is, and the file's size and time after it was written."""

    tag: ObjectTag
    size: int
    mtime_ns: int


class WorkingCopy:
    """The folder ``root`` as a copy of a bucket. Several threads and processes may use it at once."""

    def __init__(self, bucket: Bucket, root: Path) -> None:
        self.bucket = bucket
        self.root = root
        self.guards: set[Callable[[], None]] = set()
        """One for each lease that is held; it raises BucketError once the lease is lost and nothing may be written."""
        self._refreshed: float | None = None
        self._thread = threading.Lock()

    def name_of(self, path: Path) -> str:
        """The object that a file or folder of the copy is."""
        return path.relative_to(self.root).as_posix()

    def is_shared(self, path: Path) -> bool:
        """Whether a file belongs to the bucket, and not to this machine alone."""
        name = PurePosixPath(self.name_of(path))
        if name.suffix == ".lock" or any(part.startswith(".") for part in name.parts):
            return False
        if name.parts[0].startswith("audit.duckdb") or name.parts[0] == LOCKS:
            return False
        return not any(name.is_relative_to(own) for own in _OF_THIS_MACHINE)

    def refresh(self, *, at_most_every: float = 0.0) -> None:
        """Fetch whatever others have written or deleted, but for what is fetched on demand."""
        with self._thread:
            now = time.monotonic()
            if self._refreshed is not None and now - self._refreshed < at_most_every:
                return
            folders = [name for name in self.bucket.folders() if name not in (*_ON_DEMAND, LOCKS)]
            objects = [stored for name in folders for stored in self._iterate_objects_below(name)]
            local_names = {path.name for path in self.root.iterdir()} - {*_ON_DEMAND, *_OF_THIS_MACHINE}
            self._synchronise_files(objects, [self.root / name for name in local_names])
            self._refreshed = now

    def bring(self, folder: Path) -> None:
        """Fetch what is below ``folder``, which is fetched on demand, as it is in the bucket now."""
        name = self.name_of(folder)
        self._synchronise_files(
            [stored for stored in self.bucket.objects(name) if stored.name.startswith(f"{name}/")], [folder]
        )

    def refetch_file(self, path: Path) -> bool:
        """Fetch a file again that is damaged on this machine; False if the bucket has none."""
        name = self.name_of(path)
        stored = self.bucket.head(name) if self.is_shared(path) else None
        if stored is None:
            return False
        with self._open_notes() as notes:
            self._fetch(notes, stored, known_note=notes.get(name))
        return True

    def refresh_file(self, path: Path) -> None:
        """Make one shared file the same as its object in the bucket now."""
        name = self.name_of(path)
        stored = self.bucket.head(name)
        with self._open_notes() as notes:
            note = notes.get(name)
            if stored is None:
                self._remove_replaced_file(notes, name)
            elif not self._is_file_current(stored, path, note):
                self._fetch(notes, stored, note)

    def place(self, temporary: Path, path: Path) -> None:
        """Put a finished file into the bucket, then into its place in the copy."""
        self.require_leases()
        name = self.name_of(path)
        tag = self.bucket.put(name, temporary)
        with self._placement_lock(), self._open_notes() as notes:
            temporary.replace(path)
            notes.set(name, tag, path)

    def create(self, path: Path, content: bytes) -> bool:
        """Put a file into the bucket that is not there yet, and into its place in the copy; False where it is there.

        The file is then the one that is there.
        """
        name = self.name_of(path)
        try:
            self.bucket.create(name, content)
            is_made = True
        except BeatenError:
            found = self.bucket.read(name)
            # The answer to a request of ours may have been lost.
            is_made = found is not None and found[0] == content
        self.refresh_file(path)
        return is_made

    def remove(self, path: Path) -> None:
        """Delete a file in the bucket, then on this machine; one that is gone counts as deleted."""
        self.require_leases()
        name = self.name_of(path)
        self.bucket.delete([name])
        with self._placement_lock(), self._open_notes() as notes:
            path.unlink(missing_ok=True)
            notes.forget(name)

    def remove_folder(self, folder: Path) -> None:
        """Delete everything below a folder in the bucket, then on this machine."""
        self.require_leases()
        name = self.name_of(folder)
        below = f"{name}/"
        self.bucket.delete([stored.name for stored in self.bucket.objects(name) if stored.name.startswith(below)])
        with self._placement_lock(), self._open_notes() as notes:
            shutil.rmtree(folder, ignore_errors=False)
            notes.forget_below(name)

    def keep_folder(self, folder: Path) -> None:
        """Put every file of a folder that other code has written in place into the bucket."""
        self.require_leases()
        files = [path for path in folder.rglob("*") if path.is_file() and self.is_shared(path)]
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            tags = list(pool.map(lambda path: self.bucket.put(self.name_of(path), path), files))
        with self._placement_lock(), self._open_notes() as notes:
            for path, tag in zip(files, tags, strict=True):
                notes.set(self.name_of(path), tag, path)

    def require_leases(self) -> None:
        """Raise BucketError if a lease that this process holds was lost."""
        for guard in list(self.guards):
            guard()

    def _iterate_objects_below(self, name: str) -> Iterator[StoredObject]:
        return (item for item in self.bucket.objects(name) if item.name == name or item.name.startswith(f"{name}/"))

    def _synchronise_files(self, objects: Iterable[StoredObject], places: Iterable[Path]) -> None:
        """Make the shared files in ``places`` the same as ``objects``."""
        remote = {stored.name: stored for stored in objects if self.is_shared(self.root / stored.name)}
        local = {
            self.name_of(path): path
            for place in places
            for path in ([place] if place.is_file() else _files_below(place))
            if self.is_shared(path)
        }
        with self._open_notes() as notes:
            known = notes.all()
            outdated = [
                stored
                for name, stored in remote.items()
                if not self._is_file_current(stored, local.get(name), known.get(name))
            ]
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
                # Each thread has a connection of its own.
                list(pool.map(lambda stored: self._fetch_noted(stored, known.get(stored.name)), outdated))
            for name in local.keys() - remote.keys():
                self._remove_replaced_file(notes, name)

    def _is_file_current(self, stored: StoredObject, path: Path | None, note: _Note | None) -> bool:
        if path is None or note is None or note.tag != stored.tag:
            return False
        try:
            stat = path.stat()
        except FileNotFoundError:
            return False
        return (stat.st_size, stat.st_mtime_ns) == (note.size, note.mtime_ns)

    def _fetch_noted(self, stored: StoredObject, known_note: _Note | None) -> None:
        with self._open_notes() as notes:
            self._fetch(notes, stored, known_note)

    def _fetch(self, notes: _Notes, stored: StoredObject, known_note: _Note | None) -> None:
        """Fetch an object, unless a process of this machine has written the file since ``known_note`` was looked up."""
        path = self.root / stored.name
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        os.close(handle)
        temporary = Path(name)
        try:
            fetched = self.bucket.fetch(stored.name, temporary)
            if fetched is None:
                # Deleted since it was listed.
                return
            moment = int(fetched.written_at.timestamp() * 1e9)
            os.utime(temporary, ns=(moment, moment))
            with self._placement_lock():
                if notes.get(stored.name) == known_note:
                    temporary.replace(path)
                    notes.set(stored.name, fetched.tag, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _remove_replaced_file(self, notes: _Notes, name: str) -> None:
        with self._placement_lock():
            # Checked once more: a process of this machine may have put it there since the bucket was listed.
            if self.bucket.head(name) is None:
                (self.root / name).unlink(missing_ok=True)
                notes.forget(name)

    def _placement_lock(self) -> FileLock:
        """A file and its note are changed together, and by one at a time."""
        return FileLock(self.root / ".working_copy.lock")

    @contextmanager
    def _open_notes(self) -> Iterator[_Notes]:
        with closing(sqlite3.connect(self.root / _NOTES, timeout=60.0, isolation_level=None)) as connection:
            yield _Notes(connection)


class _Notes:
    """Which object each file of a copy is."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(
            "CREATE TABLE IF NOT EXISTS notes"
            " (name TEXT PRIMARY KEY, e_tag TEXT, version TEXT, size INTEGER, mtime_ns INTEGER) WITHOUT ROWID"
        )

    def all(self) -> dict[str, _Note]:
        rows = self._connection.execute("SELECT name, e_tag, version, size, mtime_ns FROM notes")
        return {name: _Note(ObjectTag(e_tag, version), size, mtime) for name, e_tag, version, size, mtime in rows}

    def get(self, name: str) -> _Note | None:
        row = self._connection.execute(
            "SELECT e_tag, version, size, mtime_ns FROM notes WHERE name = ?", [name]
        ).fetchone()
        return _Note(ObjectTag(row[0], row[1]), row[2], row[3]) if row else None

    def set(self, name: str, tag: ObjectTag, path: Path) -> None:
        stat = path.stat()
        row = [name, tag.e_tag, tag.version, stat.st_size, stat.st_mtime_ns]
        self._connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", row)

    def forget(self, name: str) -> None:
        self._connection.execute("DELETE FROM notes WHERE name = ?", [name])

    def forget_below(self, folder: str) -> None:
        # "0" comes after "/".
        self._connection.execute("DELETE FROM notes WHERE name >= ? AND name < ?", [f"{folder}/", f"{folder}0"])


_open: dict[Path, WorkingCopy] = {}


def resolve_data_root(address: str) -> Path:
    """The folder of this machine for a data folder that is given as a path or as a bucket's address.

    A bucket's working copy is made if it does not exist, and refreshed at most every 30 seconds.
    Raises BucketError if the bucket cannot be reached.
    """
    if not is_bucket_url(address):
        root = Path(address).expanduser().resolve()
        marker = root / MARKER
        # Not Path.exists, which raises in the home of another user: whoever reads or writes there says so.
        if not os.path.exists(marker):
            return root
        address = str(json.loads(marker.read_text(encoding="utf-8"))["bucket"])
    else:
        root = _copy_path_of(address)
    copy = _open.get(root)
    if copy is None:
        copy = _open[root] = WorkingCopy(Bucket(address), _make_copy_folder(root, address))
    copy.refresh(at_most_every=REFRESH_SECONDS)
    return root


def data_address(root: Path) -> str:
    """What names the same data folder to another process, maybe of another machine: a path, or a bucket's address."""
    copy = copy_of(root)
    return str(root) if copy is None else copy.bucket.url


def copy_of(path: Path) -> WorkingCopy | None:
    """The working copy that a path lies in; None for a path of an ordinary folder."""
    return next((copy for root, copy in _open.items() if path == root or root in path.parents), None) if _open else None


def refresh(path: Path) -> None:
    """Fetch what others have written, if ``path`` lies in a working copy: before something exclusive begins."""
    if (copy := copy_of(path)) is not None:
        copy.refresh()


def refresh_file(path: Path) -> None:
    """Fetch one file as others have left it, if it lies in a working copy."""
    if (copy := copy_of(path)) is not None:
        copy.refresh_file(path)


def fetch_folder_on_demand(folder: Path) -> None:
    """Fetch a folder that is fetched on demand, if it lies in a working copy."""
    if (copy := copy_of(folder)) is not None:
        copy.bring(folder)


def refetch_damaged_file(path: Path) -> bool:
    """Whether a damaged file lay in a working copy and was fetched anew; never in an ordinary folder."""
    copy = copy_of(path)
    return copy is not None and copy.refetch_file(path)


def put_in_place(temporary: Path, path: Path) -> None:
    """Move a finished file to ``path``; in a working copy, put it into the bucket first."""
    _apply_in_copy_or_folder(path, lambda copy: copy.place(temporary, path), lambda: temporary.replace(path))


def remove(path: Path) -> None:
    """Remove a file; in a working copy, its object first. One that is gone counts as removed."""
    _apply_in_copy_or_folder(path, lambda copy: copy.remove(path), lambda: path.unlink(missing_ok=True))


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it; in a working copy, its objects first."""
    _apply_in_copy_or_folder(folder, lambda copy: copy.remove_folder(folder), lambda: shutil.rmtree(folder))


def upload_folder(folder: Path) -> None:
    """Put into the bucket what other code than files.py has written into a folder, if it lies in a working copy."""
    _apply_in_copy_or_folder(folder, lambda copy: copy.keep_folder(folder), lambda: None)


def _apply_in_copy_or_folder(
    path: Path, in_copy: Callable[[WorkingCopy], object], in_folder: Callable[[], object]
) -> None:
    copy = copy_of(path)
    if copy is not None and copy.is_shared(path):
        in_copy(copy)
    else:
        in_folder()


def _copy_path_of(url: str) -> Path:
    """Where the working copy of a bucket lies: CORPUS_AUDIT_COPIES, else the user's own cache folder."""
    given = os.environ.get("CORPUS_AUDIT_COPIES")
    base = Path(given).expanduser() if given else user_cache_path("corpus-audit", appauthor=False) / "buckets"
    url = require_bucket_url(url)
    name = url.partition("://")[2].replace("/", "-")[:40]
    return (base / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}").resolve()


def _make_copy_folder(root: Path, url: str) -> Path:
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = root / MARKER
    if not marker.exists():
        Bucket(url).require_conditional_put()
        marker.write_text(json.dumps({"bucket": require_bucket_url(url)}) + "\n", encoding="utf-8")
    return root


def _files_below(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names)
