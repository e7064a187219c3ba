"""A bucket of an object store (S3, Google Cloud Storage, Azure): read, write, write if absent, list, delete.

obstore rather than pyarrow's file systems or fsspec's: the ledger needs a put that fails where the object exists.
"""

from __future__ import annotations

import functools
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit_pipeline.errors import AuditError, to_one_line

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

_URL = re.compile(r"(s3|gs|az)://[^/]+(/.*)?")
_RETRIES: RetryConfig = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
_IN_ONE_REQUEST_BYTES = 32 << 20
"""A killed writer of a larger object may leave an unfinished multipart upload in the bucket."""

_FAULTS = (
    (r"NoSuchBucket|ContainerNotFound", "there is no such bucket"),
    (
        r"PermissionDenied|Unauthenticated|\b40[13]\b|AccessDenied|InvalidAccessKey|SignatureDoesNot",
        "access is refused: are the right keys in the environment, and may they list, read, write and delete?",
    ),
    (r"scheme is not allowed", "its address begins with http: set AWS_ALLOW_HTTP=true if the network is private"),
    (
        r"error sending request|dns error|timed out|Connection refused",
        "the store does not answer: is its address right (AWS_ENDPOINT_URL where it is not the provider's own)?",
    ),
)


class BucketError(AuditError):
    """A bucket that cannot be reached, or does not let us do what has to be done."""


@dataclass(frozen=True)
class StoredObject:
    """An object as it is listed."""

    name: str
    size: int
    e_tag: str | None


class Bucket:
    """The objects below one address. Keys and regions come from the environment, as the store's own tools read them.

    Every method raises BucketError, in one line, where the store cannot be reached or refuses.
    """

    def __init__(self, url: str) -> None:
        if not _URL.fullmatch(url):
            raise BucketError(
                f"{url} is not a bucket URL; use s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or "
                "az://ACCOUNT/CONTAINER/FOLDER"
            )
        self.url = url.rstrip("/")

    @functools.cached_property
    def _store(self) -> ObjectStore:
        from obstore.store import from_url  # noqa: PLC0415 - an extra, which only a bucket needs

        return from_url(self.url, retry_config=_RETRIES)

    def list(self, folder: str = "") -> Iterator[StoredObject]:
        """Every object below ``folder`` ("" is all of them), in no particular order."""
        with self._translate_store_errors():
            for page in self._store.list(folder or None, chunk_size=1000):
                yield from map(_object_from_meta, page)

    def fetch(self, name: str, path: Path) -> StoredObject | None:
        """Write an object's bytes into the file ``path``, which gets the object's time; None where there is none."""
        with suppress(FileNotFoundError), self._translate_store_errors():
            answer = self._store.get(name)
            with path.open("wb") as file:
                for piece in answer.stream(min_chunk_size=1 << 20):
                    file.write(piece)
            moment = answer.meta["last_modified"].timestamp()
            os.utime(path, (moment, moment))
            return _object_from_meta(answer.meta)
        return None

    def write(self, name: str, content: bytes | Path) -> str:
        """Write an object, whole or not at all; an earlier one is overwritten. Returns its entity tag."""
        with self._translate_store_errors():
            return self._store.put(name, content, chunk_size=_IN_ONE_REQUEST_BYTES)["e_tag"] or ""

    def write_if_absent(self, name: str, content: bytes) -> str | None:
        """Write an object that does not exist, and return its entity tag.

        None where it exists: another writer has written it, or this one, where the answer to its request was lost.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError  # noqa: PLC0415

        with self._translate_store_errors(), suppress(AlreadyExistsError, PreconditionError):
            return self._store.put(name, content, mode="create")["e_tag"] or ""
        return None

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; a missing object is no error."""
        for name in names:
            # Google and Azure say that it is missing.
            with suppress(FileNotFoundError), self._translate_store_errors():
                self._store.delete(name)

    def require_conditional_put(self) -> None:
        """Raise BucketError if the store overwrites an object that must not exist.

        Some S3-compatible stores do; two machines could write one number of the ledger there.
        """
        name = f".probe-{uuid.uuid4().hex}"
        self.write_if_absent(name, b"1")
        try:
            is_overwritten = self.write_if_absent(name, b"2") is not None
        finally:
            self.delete([name])
        if is_overwritten:
            raise BucketError(
                f"{self.url}: this store does not know conditional puts (If-None-Match), without which two machines "
                "could overwrite each other's lines of the ledger: use another store, or a shared folder"
            )

    @contextmanager
    def _translate_store_errors(self) -> Iterator[None]:
        """Raise a store's errors as BucketError, but for those of a missing object and of this machine's disk."""
        try:
            from obstore import exceptions  # noqa: PLC0415
        except ImportError as error:
            raise BucketError(
                "a data folder in a bucket needs the package obstore: install corpus-audit[bucket]"
            ) from error
        try:
            yield
        except FileNotFoundError as error:
            if not re.search(_FAULTS[0][0], str(error)):
                raise
            raise BucketError(f"{self.url}: {_FAULTS[0][1]}") from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            if getattr(error, "errno", None) is not None:
                raise
            raise BucketError(f"{self.url}: {_describe_store_error(error)}") from error


def _object_from_meta(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], meta["e_tag"])


def _describe_store_error(error: Exception) -> str:
    """A store's error for people. It names the request, and may name signed addresses: neither is repeated."""
    message = to_one_line(error)
    for pattern, words in _FAULTS:
        if re.search(pattern, message):
            return words
    if found := re.search(r"status code: (\d{3} [A-Za-z ]+)", message):
        return f"the store answers {found[1].strip()}, again and again"
    return message[:300]
