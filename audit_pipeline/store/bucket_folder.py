"""A data folder in a bucket, read through a cache on this machine: a folder with the same files.

A file is put into the bucket before it takes its place in the cache, and deleted there first: after a kill the bucket
is ahead, and the next listing (names, sizes, entity tags) decides what is fetched. Nothing is renamed in the bucket,
and an object is seen whole or not at all. The cache can be deleted at any time.

Machines share no lock. Most files never change; lines of the ledger are created only where absent; of what is rewritten
the ledger says which content counts. The warehouse's object is named after the lines that it was built from, so one of
an older ledger never takes the place of a newer one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock
from platformdirs import user_cache_path

from audit_pipeline.store.integrity import find_file_identity
from audit_pipeline.store.object_store import Bucket, BucketError, StoredObject

REFRESH_SECONDS = 30.0
"""The longest time after which a command, a step or a sensor lists the bucket again."""

_LEDGER, _WAREHOUSES, _WAREHOUSE = "ledger", "warehouse", "audit.duckdb"
_ON_DEMAND = ("token_statistics", _WAREHOUSES)
"""Fetched on demand: they are large, and no command needs all of them."""
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
_NOTES = ".objects.jsonl"
_REQUESTS_AT_ONCE = 16


class BucketFolder:
    """The data folder in ``bucket``, cached in ``root``. Several threads and processes may use it at once."""

    def __init__(self, bucket: Bucket, root: Path) -> None:
        self.bucket = bucket
        self.root = root
        self._refreshed = -REFRESH_SECONDS
        # A file and its note are changed together, by one process at a time.
        self._placing = FileLock(root / ".placing.lock")

    def name_of(self, path: Path) -> str:
        """The object that a file or folder of the cache is."""
        return path.relative_to(self.root).as_posix()

    def is_shared(self, name: str) -> bool:
        """Whether a file belongs to the bucket, and not to this machine alone."""
        path = PurePosixPath(name)
        is_temporary = path.suffix == ".lock" or any(part.startswith(".") for part in path.parts)
        is_own = name.startswith(_WAREHOUSE) or any(map(path.is_relative_to, _OF_THIS_MACHINE))
        return not (is_temporary or is_own)

    def refresh(self, folder: str = "", *, at_most_every: float = 0.0) -> None:
        """Fetch what others have written below ``folder``, and drop what they have deleted.

        Without a folder that is everything but what is fetched on demand.
        """
        started = time.monotonic()
        if started - self._refreshed < at_most_every:
            return
        notes = {name: e_tag for name, e_tag in self._read_notes().items() if self._is_in(folder, name)}
        before = {name: find_file_identity(self.root / name) for name in notes}
        objects = {stored.name: stored for stored in self.bucket.list(folder) if self._is_in(folder, stored.name)}
        if not folder:
            # Listed last and fetched first: no file comes without the line that explains it.
            objects |= {stored.name: stored for stored in self.bucket.list(_LEDGER)}
        copies = {name: (identity[0], notes[name]) for name, identity in before.items() if identity is not None}
        outdated = [item for item in objects.values() if copies.get(item.name) != (item.size, item.e_tag)]
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            for is_line in (True, False):
                list(pool.map(self.fetch, (item for item in outdated if item.name.startswith(_LEDGER) == is_line)))
        for name in before.keys() - objects.keys():
            with self._placing:
                # Another process of this machine may have put one there since the bucket was listed.
                if find_file_identity(self.root / name) == before[name]:
                    (self.root / name).unlink(missing_ok=True)
                    self._note(name, None)
        if not folder:
            self._refreshed = started

    def fetch(self, stored: StoredObject) -> bool:
        """Fetch an object as it was listed; False where it has changed since, in the bucket or by a process here."""
        path = self.root / stored.name
        before = find_file_identity(path)
        with temporary_file(path.parent, path.name) as temporary:
            fetched = self.bucket.fetch(stored.name, temporary)
            if fetched is None or fetched.e_tag != stored.e_tag:
                return False
            with self._placing:
                if is_unchanged := find_file_identity(path) == before:
                    self.place(temporary, path, fetched.e_tag)
        return is_unchanged

    def place(self, file: Path, path: Path, e_tag: str | None) -> None:
        """Move a file that is in the bucket to its place in the cache."""
        with self._placing:
            # After a kill the first note lets a deletion in the bucket reach the file.
            self._note(self.name_of(path), "")
            file.replace(path)
            self._note(self.name_of(path), e_tag)

    def create_if_absent(self, path: Path, content: bytes) -> bool:
        """Put a file into the bucket, then into its place in the cache; False where the bucket has one of that name."""
        e_tag = self.bucket.write_if_absent(self.name_of(path), content)
        if e_tag is not None:
            with temporary_file(path.parent, path.name) as temporary:
                temporary.write_bytes(content)
                self.place(temporary, path, e_tag)
        return e_tag is not None

    def publish_warehouse(self, file: Path, version: str, swap_in: Callable[[], Path | None]) -> Path | None:
        """Put a warehouse into the bucket, then into its place; all but the latest in the bucket go."""
        name = f"{_WAREHOUSES}/{version}.duckdb"
        e_tag = self.bucket.write(name, file)
        with self._placing:
            moved = swap_in()
            self._note(_WAREHOUSE, [name, e_tag])
        self.bucket.delete(stored.name for stored in self.list_warehouses()[:-1])
        return moved

    def fetch_warehouse(self, warehouse: Path) -> None:
        """Make ``warehouse`` the latest in the bucket; where there is none, remove it."""
        while stored := self.list_warehouses()[-1:]:
            (latest,) = stored
            if warehouse.exists() and self._read_notes().get(_WAREHOUSE) == [latest.name, latest.e_tag]:
                return
            with temporary_file(warehouse.parent, warehouse.name) as temporary:
                # None: a newer one has taken its place since it was listed.
                if (fetched := self.bucket.fetch(latest.name, temporary)) is not None:
                    with self._placing:
                        temporary.replace(warehouse)
                        self._note(_WAREHOUSE, [fetched.name, fetched.e_tag])
                    return
        warehouse.unlink(missing_ok=True)

    def list_warehouses(self) -> list[StoredObject]:
        """The warehouses in the bucket, that of the longest ledger last."""
        return sorted(self.bucket.list(_WAREHOUSES), key=lambda stored: stored.name)

    def _is_in(self, folder: str, name: str) -> bool:
        """Whether a file is one of those that are brought up to date with ``folder``."""
        is_below = name.startswith(f"{folder}/") if folder else not name.startswith(_ON_DEMAND)
        return is_below and self.is_shared(name)

    def _note(self, name: str, content: Any) -> None:
        """Note the entity tag of what a file of the cache is a copy of."""
        with (self.root / _NOTES).open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, content]) + "\n")

    def _read_notes(self) -> dict[str, Any]:
        """The last note of each name; those before it are dropped now and then."""
        with self._placing:
            file = self.root / _NOTES
            lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
            notes: dict[str, Any] = {}
            for line in lines:
                # A file of which a killed process has left half a note is fetched again.
                with suppress(ValueError):
                    notes |= [json.loads(line)]
            if len(lines) > 2 * len(notes) + 1000:
                with temporary_file(file.parent, file.name) as temporary:
                    temporary.write_text("".join(json.dumps(note) + "\n" for note in notes.items()), encoding="utf-8")
                    temporary.replace(file)
        return {name: content for name, content in notes.items() if content is not None}


_open: dict[Path, BucketFolder] = {}


def resolve_data_root(address: str) -> Path:
    """The folder of this machine for a data folder that is given as a path or as a bucket's address.

    A bucket's cache is made if it does not exist, and refreshed at most every 30 seconds.
    Raises BucketError if the bucket cannot be reached, or if the path is that of a cache.
    """
    if "://" not in address:
        path = Path(address).expanduser().resolve()
        if (path / _NOTES).exists():
            raise BucketError(f"{path} is a bucket's cache: give the bucket's address instead (CORPUS_AUDIT_DATA)")
        return path
    bucket = Bucket(address)
    root = _cache_path(bucket.url)
    if root not in _open:
        if not root.exists():
            bucket.require_conditional_put()
            root.mkdir(parents=True, mode=0o700, exist_ok=True)
        _open[root] = BucketFolder(bucket, root)
    _open[root].refresh(at_most_every=REFRESH_SECONDS)
    return root


def find_bucket_folder(path: Path) -> BucketFolder | None:
    """The data folder in a bucket that a path lies in; None for a path of an ordinary folder."""
    return next((folder for root, folder in _open.items() if path.is_relative_to(root)), None) if _open else None


def refresh(path: Path) -> None:
    """Fetch what others have written into a data folder, or a folder of it, if it lies in a bucket."""
    if (folder := find_bucket_folder(path)) is not None:
        folder.refresh("" if path == folder.root else folder.name_of(path))


def refetch_damaged_file(path: Path) -> bool:
    """Whether a damaged file was in a bucket's cache and was fetched anew; never in an ordinary folder."""
    if (folder := find_bucket_folder(path)) is None:
        return False
    name = folder.name_of(path)
    return any(folder.fetch(stored) for stored in folder.bucket.list(str(Path(name).parent)) if stored.name == name)


def put_in_place(file: Path, path: Path) -> None:
    """Move a finished file to ``path``; in a bucket's cache, put it into the bucket first."""
    folder = find_bucket_folder(path)
    if folder is None or not folder.is_shared(name := folder.name_of(path)):
        file.replace(path)
    else:
        folder.place(file, path, folder.bucket.write(name, file))


def upload_folder(path: Path) -> None:
    """Put into the bucket what other code than files.py has written into a folder, if it lies in a bucket's cache."""
    for file in filter(Path.is_file, [*path.rglob("*")]):
        put_in_place(file, file)


def remove(path: Path) -> None:
    """Remove a file; in a bucket's cache, its object first. One that is gone counts as removed."""
    if (folder := find_bucket_folder(path)) is not None:
        if (name := folder.name_of(path)) == _WAREHOUSE:
            folder.bucket.delete(stored.name for stored in folder.list_warehouses())
        elif folder.is_shared(name):
            folder.bucket.delete([name])
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it; in a bucket's cache, its objects first."""
    for file in filter(Path.is_file, [*path.rglob("*")]):
        remove(file)
    shutil.rmtree(path)


def publish_warehouse(file: Path, warehouse: Path, version: str, swap_in: Callable[[], Path | None]) -> Path | None:
    """Put a warehouse of a ledger's ``version`` in place; in a bucket's cache, put it into the bucket first."""
    folder = find_bucket_folder(warehouse)
    return swap_in() if folder is None else folder.publish_warehouse(file, version, swap_in)


def refresh_warehouse(warehouse: Path) -> None:
    """Make ``warehouse`` the latest that any machine has built, if it lies in a bucket's cache."""
    if (folder := find_bucket_folder(warehouse)) is not None:
        folder.fetch_warehouse(warehouse)


def _cache_path(url: str) -> Path:
    """Where a bucket's cache lies: in CORPUS_AUDIT_BUCKET_CACHE, else in the user's own cache folder."""
    given = os.environ.get("CORPUS_AUDIT_BUCKET_CACHE")
    base = Path(given).expanduser() if given else user_cache_path("corpus-audit", appauthor=False) / "buckets"
    name = url.partition("://")[2].replace("/", "-")[:40]
    return (base / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}").resolve()


@contextmanager
def temporary_file(folder: Path, prefix: str) -> Iterator[Path]:
    """An empty file in ``folder``, whose name begins with a dot and ``prefix``; it is gone after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{prefix}.", suffix=".tmp")
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
