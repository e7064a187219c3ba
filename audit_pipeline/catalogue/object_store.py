"""A bucket of an object store (S3, Google Cloud Storage, Azure), as the few operations that a data folder needs of it.

What belongs here: listing, reading, writing and deleting objects, the conditional put, and what goes wrong with them in
one line. What does not: which file is which object (working_copy.py), who may write when (locks.py).

obstore, not pyarrow's file systems: these have no conditional put, and what must be exclusive in a bucket hangs on it.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from audit_pipeline.errors import AuditError, to_one_line

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

SCHEMES = ("s3", "gs", "az")
_URL = re.compile(rf"({'|'.join(SCHEMES)})://[^/]+(/.*)?")
_RETRIES: RetryConfig = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
_PROBE = "locks/probe"

Answer = TypeVar("Answer")


class BucketError(AuditError):
    """A bucket that cannot be reached, or does not let us do what has to be done."""


class BeatenError(BucketError):
    """A conditional put was refused: another writer has changed the object."""


@dataclass(frozen=True)
class ObjectTag:
    """What tells one content of an object from another: the store's entity tag, and its version where it has one."""

    e_tag: str | None
    version: str | None = None


@dataclass(frozen=True)
class StoredObject:
    """An object as it is listed; ``written_at`` is the store's own time."""

    name: str
    size: int
    tag: ObjectTag
    written_at: datetime


def is_bucket_url(address: str) -> bool:
    """Whether this is the address of a bucket and not a path."""
    return "://" in address


def require_bucket_url(url: str) -> str:
    """``url`` without a trailing slash; raises BucketError if it is not a bucket URL."""
    if not _URL.fullmatch(url):
        raise BucketError(
            f"{url} is not a bucket URL; use s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or az://ACCOUNT/CONTAINER/FOLDER"
        )
    return url.rstrip("/")


class Bucket:
    """The objects below one address. Keys and regions come from the environment, as the store's own tools read them.

    Every method raises BucketError, in one line, where the store cannot be reached or refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = require_bucket_url(url)

    @functools.cached_property
    def _store(self) -> ObjectStore:
        try:
            from obstore.store import from_url  # noqa: PLC0415 - an extra, which only a bucket needs
        except ImportError as error:
            raise BucketError(
                "a data folder in a bucket needs the package obstore: install corpus-audit[bucket]"
            ) from error
        return self._answer(lambda: from_url(self.url, retry_config=_RETRIES))

    def objects(self, folder: str = "") -> Iterator[StoredObject]:
        """Every object below ``folder`` ("" is all of them), in no particular order."""
        pages = iter(self._answer(lambda: self._store.list(folder or None, chunk_size=1000)))
        while page := self._answer(lambda: next(pages, None)):
            yield from map(_object_from_meta, page)

    def folders(self) -> list[str]:
        """The first parts of the objects' names, and the names that have one part, in order."""
        found = self._answer(self._store.list_with_delimiter)
        return sorted([*found["common_prefixes"], *(stored["path"] for stored in found["objects"])])

    def head(self, name: str) -> StoredObject | None:
        """An object as it would be listed, or None."""
        try:
            return _object_from_meta(self._answer(lambda: self._store.head(name)))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> tuple[bytes, StoredObject] | None:
        """The bytes of a small object, and the object that they are of; None where there is none."""

        def whole() -> tuple[bytes, StoredObject]:
            got = self._store.get(name)
            return bytes(got.bytes()), _object_from_meta(got.meta)

        try:
            return self._answer(whole)
        except FileNotFoundError:
            return None

    def fetch(self, name: str, path: Path) -> StoredObject | None:
        """Write an object's bytes into the file ``path``; None where there is none."""

        def whole() -> StoredObject:
            got = self._store.get(name)
            with path.open("wb") as file:
                for piece in got.stream(min_chunk_size=1 << 20):
                    file.write(piece)
            return _object_from_meta(got.meta)

        try:
            return self._answer(whole)
        except FileNotFoundError:
            return None

    def put(self, name: str, content: bytes | Path) -> ObjectTag:
        """Write an object; an earlier one is overwritten."""
        return self._put(name, content, "overwrite")

    def create(self, name: str, content: bytes) -> ObjectTag:
        """Write an object that does not exist; raises BeatenError if it does."""
        return self._put(name, content, "create")

    def replace(self, name: str, content: bytes, tag: ObjectTag) -> ObjectTag:
        """Overwrite the object of ``tag``; raises BeatenError if it has changed."""
        condition = {"e_tag": tag.e_tag, "version": tag.version}
        return self._put(name, content, {key: value for key, value in condition.items() if value is not None})

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; missing ones are no error."""
        given = list(names)
        try:
            if given:
                self._answer(lambda: self._store.delete(given))
        except FileNotFoundError:
            # Google and Azure say so; they have deleted the others.
            for name in given if len(given) > 1 else []:
                self.delete([name])

    def require_conditional_put(self) -> None:
        """Raise BucketError if the store overwrites an object that must not exist.

        Some S3-compatible stores do; leases would not exclude other machines there.
        """
        name = f"{_PROBE}-{uuid.uuid4().hex}"
        self.create(name, b"1")
        try:
            self.create(name, b"2")
        except BeatenError:
            return
        finally:
            self.delete([name])
        raise BucketError(
            f"{self.url}: this store does not know conditional puts (If-None-Match), without which two machines could "
            "write at once: use another store, or a shared folder"
        )

    def now(self) -> datetime:
        """The store's own time, to a second: that of an object written for it."""
        name = f"{_PROBE}-{uuid.uuid4().hex}"
        self.put(name, b"")
        try:
            stored = self.head(name)
        finally:
            self.delete([name])
        if stored is None:
            raise BucketError(f"{self.url}: an object that was just written is missing")
        return stored.written_at

    def _put(self, name: str, content: bytes | Path, mode: Any) -> ObjectTag:
        done = self._answer(
            # In one request if it is small, so that a killed writer leaves no part behind.
            lambda: self._store.put(name, content, mode=mode, chunk_size=32 << 20)
        )
        return ObjectTag(done["e_tag"], done["version"])

    def _answer(self, ask: Callable[[], Answer]) -> Answer:
        """What the store answers; its errors in one line. Raises FileNotFoundError for an object that is not there."""
        from obstore import exceptions  # noqa: PLC0415

        try:
            return ask()
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise BeatenError(f"{self.url}: another writer has changed the object") from error
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error) or "ContainerNotFound" in str(error):
                raise BucketError(f"{self.url}: there is no such bucket") from error
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise BucketError(f"{self.url}: {_describe_store_error(error)}") from error


def _object_from_meta(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], ObjectTag(meta["e_tag"], meta["version"]), meta["last_modified"])


_FAULTS = (
    (r"NoSuchBucket|ContainerNotFound", "there is no such bucket"),
    (
        r"PermissionDenied|Unauthenticated|\b40[13]\b|AccessDenied|InvalidAccessKey|SignatureDoesNot",
        "access is refused: are the right keys in the environment, and may they list, read, write and delete?",
    ),
    (
        r"scheme is not allowed",
        "its address begins with http: set AWS_ALLOW_HTTP=true if the network is private",
    ),
    (
        r"error sending request|dns error|timed out|Connection refused",
        "the store does not answer: is its address right (AWS_ENDPOINT_URL where it is not the provider's own)?",
    ),
)


def _describe_store_error(error: Exception) -> str:
    """A store's error for people. It names the request, and may name signed addresses: neither is repeated."""
    message = to_one_line(error)
    for pattern, words in _FAULTS:
        if re.search(pattern, message):
            return words
    if found := re.search(r"status code: (\d{3} [A-Za-z ]+)", message):
        return f"the store answers {found[1].strip()}, again and again"
    return message[:300]
