"""A server of buckets, and machines: caches of the bucket that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="a data folder in a bucket needs the extra `bucket`")

from s3_server import S3Server

from audit_pipeline.store import bucket_folder
from audit_pipeline.store.object_store import Bucket
from audit_pipeline.store.paths import DataPaths


@pytest.fixture(scope="session")
def _server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server without any bucket, and the environment that leads there."""
    import httpx2

    httpx2.post(f"{_server.url}/moto-api/reset")
    httpx2.put(f"{_server.url}/audits")
    for name, value in {
        "AWS_ENDPOINT_URL": _server.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "made",
        "AWS_SECRET_ACCESS_KEY": "up",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    _server.requests.clear()
    yield _server
    _server.before = lambda method, path: None
    _server.after = lambda method, path: None


@pytest.fixture
def url(s3: S3Server) -> str:
    return "s3://audits/team"


Machine = Callable[[str], DataPaths]


@pytest.fixture
def machine(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The data folder in the bucket as a machine of that name sees it now."""
    monkeypatch.setattr(bucket_folder, "_open", {})
    monkeypatch.setenv("CORPUS_AUDIT_DATA", url)

    def seen_by(name: str) -> DataPaths:
        monkeypatch.setenv("CORPUS_AUDIT_BUCKET_CACHE", str(tmp_path / name))
        paths = DataPaths.from_environment()
        bucket_folder.refresh(paths.root)
        return paths

    return seen_by


@pytest.fixture
def bucket(url: str) -> Bucket:
    return Bucket(url)
