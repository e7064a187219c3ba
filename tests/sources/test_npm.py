"""Which registry, which versions, the cache, and answers that are not what they should be; all on the loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_index import make_archive

from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.pypi import read_members
from audit_pipeline.sources.npm import (
    Registry,
    Release,
    fetch_archive,
    fetch_each_major,
    final_version,
    newest_of_each_major,
    npm_settings,
    registry_from,
    releases_in,
    sha512_of,
)


@dataclass
class FakeRegistry:
    """What the server serves: package -> version -> archive; faults by path; the requests it got."""

    packages: dict[str, dict[str, bytes]] = field(default_factory=dict)
    deprecated: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    faults: dict[str, list[int]] = field(default_factory=dict)
    cut_short: dict[str, int] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    address: str = ""
    server: Any = None

    @property
    def registry(self) -> Registry:
        return Registry(address=self.address, timeout=5, attempts=3, pause=0)

    def document(self, package: str) -> bytes:
        versions = {}
        for version, data in self.packages[package].items():
            name = f"{package}-{version}"
            digest = hashlib.sha512(b"other" if name in self.wrong else data).digest()
            versions[version] = {
                "dist": {
                    "tarball": f"{self.address}files/{package}/{version}.tgz",
                    "integrity": f"sha512-{base64.b64encode(digest).decode()}",
                }
            } | ({"deprecated": "do not use"} if name in self.deprecated else {})
        return json.dumps({"name": package, "dist-tags": {}, "versions": versions}).encode()

    def answer(self, path: str) -> bytes | None:
        name = unquote(path.strip("/"))
        if name in self.raw:
            return self.raw[name]
        if name.startswith("files/"):
            package, _, file = name.removeprefix("files/").rpartition("/")
            return self.packages.get(package, {}).get(file.removesuffix(".tgz"))
        return self.document(name) if name in self.packages else None

    def downloads(self) -> list[str]:
        return [path for path in self.requests if path.startswith("/files/")]


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    fake = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.requests.append(self.path)
            status = fake.faults[self.path].pop(0) if fake.faults.get(self.path) else 200
            data = fake.answer(self.path) if status == 200 else b""
            self.send_response(404 if data is None else status)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            short = fake.cut_short.get(self.path, 0)
            fake.cut_short[self.path] = short - 1
            self.wfile.write((data or b"")[: len(data or b"") // 2] if short > 0 else data or b"")

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.address, fake.server = f"http://127.0.0.1:{server.server_address[1]}/", server
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


def packed(text: str) -> bytes:
    return make_archive("package", {"CHANGELOG.md": text})


def test_settings_of_npm_or_of_an_npmrc() -> None:
    listing = (
        'registry=https://set.invalid/npm\ncafile = "/etc/${HERE}.pem"\nhttps-proxy=null\n; a comment\nfund=false\n'
    )
    assert npm_settings(listing, {"HERE": "one"}) == {
        "registry": "https://set.invalid/npm",
        "cafile": "/etc/one.pem",
    }


def test_environment_goes_before_settings_in_either_case() -> None:
    settings = {"registry": "https://set.invalid/npm", "cafile": "set.pem", "https-proxy": "http://set.invalid"}
    environment = {"npm_config_registry": "https://env.invalid/", "NPM_CONFIG_CAFILE": "env.pem"}
    assert registry_from(settings, environment) == Registry("https://env.invalid/", "env.pem", "http://set.invalid")
    assert registry_from(settings, {}).address == "https://set.invalid/npm/"


def test_without_npm_and_without_a_registry_it_is_said_what_to_do() -> None:
    with pytest.raises(SourceError, match="NPM_CONFIG_REGISTRY"):
        registry_from({}, {"NPM_CONFIG_REGISTRY": ""})


def test_newest_final_version_that_is_not_deprecated_of_each_major(fake: FakeRegistry, tmp_path: Path) -> None:
    versions = ("0.9.0", "0.10.1", "1.2.0", "1.10.0", "1.11.0-rc.1", "1.12.0", "2.0.0-beta", "2.0.0")
    fake.packages["demo"] = {version: packed(version) for version in versions}
    fake.deprecated = {"demo-1.12.0", "demo-2.0.0"}
    archives = fetch_each_major("demo", fake.registry, tmp_path)
    assert [(archive.version, archive.fault) for archive in archives] == [("1.10.0", None), ("0.10.1", None)]
    assert archives[0].path == tmp_path / "npm" / "demo" / "demo-1.10.0.tgz"
    assert fetch_archive("demo", fake.registry, tmp_path) == archives[0]
    assert read_members(archives[1].path, lambda name: name == "CHANGELOG.md").files == {"CHANGELOG.md": b"0.10.1"}


def test_a_package_in_a_scope(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["@made/up"] = {"1.0.0": packed("a")}
    archive = fetch_archive("@made/up", fake.registry, tmp_path)
    assert archive.path == tmp_path / "npm" / "@made+up" / "up-1.0.0.tgz"
    assert fake.requests[0] == "/@made%2Fup"


def test_an_archive_is_downloaded_once_and_a_damaged_one_again(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["demo"] = {"1.0.0": packed("a")}
    first = fetch_archive("demo", fake.registry, tmp_path)
    assert fetch_archive("demo", fake.registry, tmp_path) == first
    assert len(fake.downloads()) == 1
    first.path.write_bytes(b"damaged")
    fetch_archive("demo", fake.registry, tmp_path)
    assert first.path.read_bytes() == fake.packages["demo"]["1.0.0"]
    assert len(fake.downloads()) == 2


def test_faults_that_pass_are_waited_for(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["demo"] = {"1.0.0": packed("a" * 5000)}
    fake.faults = {"/demo": [503, 429]}
    fake.cut_short = {"/files/demo/1.0.0.tgz": 2}
    assert fetch_archive("demo", fake.registry, tmp_path).path.read_bytes() == fake.packages["demo"]["1.0.0"]
    assert (fake.requests.count("/demo"), len(fake.downloads())) == (3, 3)


def test_a_wrong_sha512_is_refused_and_leaves_nothing_behind(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["demo"] = {"1.0.0": packed("a")}
    fake.wrong = {"demo-1.0.0"}
    with pytest.raises(SourceError, match="wrong sha512"):
        fetch_archive("demo", fake.registry, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_cache_stands_in_where_the_registry_fails(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["demo"] = {"0.3.0": packed("old"), "1.0.0": packed("new")}
    before = fetch_each_major("demo", fake.registry, tmp_path)
    fake.faults = {"/demo": [500] * 3}
    after = fetch_each_major("demo", fake.registry, tmp_path)
    assert [archive.path for archive in after] == [archive.path for archive in before]
    assert "500" in str(after[0].fault)
    before[0].path.write_bytes(b"damaged meanwhile")
    fake.faults = {"/demo": [500] * 3}
    assert [archive.version for archive in fetch_each_major("demo", fake.registry, tmp_path)] == ["0.3.0"]


def test_refusals_are_not_repeated(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.packages["demo"] = {"1.0.0": packed("a")}
    fake.faults = {"/files/demo/1.0.0.tgz": [403]}
    with pytest.raises(SourceError, match="403"):
        fetch_archive("demo", fake.registry, tmp_path)
    with pytest.raises(SourceError, match="no such package"):
        fetch_archive("absent", fake.registry, tmp_path)
    assert fake.requests.count("/absent") == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a package's document"),
        (b'{"versions": []}', "describes no versions"),
        (b'{"versions": {"1.0.0": {"dist": {"tarball": "x", "shasum": "1"}}}}', "no final version"),
    ],
)
def test_answers_that_are_no_package(fake: FakeRegistry, tmp_path: Path, answer: bytes, reason: str) -> None:
    fake.raw = {"demo": answer}
    with pytest.raises(SourceError, match=reason):
        fetch_archive("demo", fake.registry, tmp_path)


@pytest.mark.parametrize("name", ["../demo", "a/b", "@a/../b", "", ".demo", "Demo", "@a/b/c"])
def test_what_is_no_package_name_is_not_asked_for(fake: FakeRegistry, tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="not the name"):
        fetch_archive(name, fake.registry, tmp_path)
    assert fake.requests == []


def test_a_missing_certificate_file_is_named(fake: FakeRegistry, tmp_path: Path) -> None:
    registry = Registry(fake.address, certificates=str(tmp_path / "gone.pem"))
    with pytest.raises(SourceError, match=r"gone\.pem"):
        fetch_archive("demo", registry, tmp_path)


def test_a_password_in_the_address_is_not_told(tmp_path: Path) -> None:
    registry = Registry("ftp://me:secret@registry.invalid/", attempts=1)
    with pytest.raises(SourceError) as caught:
        fetch_archive("demo", registry, tmp_path)
    assert "secret" not in str(caught.value)


def test_sha512_among_several_hashes() -> None:
    digest = hashlib.sha512(b"x").digest()
    line = f"sha1-{base64.b64encode(b'y' * 20).decode()} sha512-{base64.b64encode(digest).decode()}?option"
    assert sha512_of(line) == digest
    assert [sha512_of(wrong) for wrong in (None, 3, "", "sha512-", "sha512-????", "sha512-eHg=")] == [None] * 6


def test_versions_without_a_file_or_hash_are_passed_over() -> None:
    good = {"tarball": "t", "integrity": f"sha512-{base64.b64encode(bytes(64)).decode()}"}
    versions = {"1.0.0": {"dist": good}, "1.0.1": {"dist": {"tarball": "t"}}, "1.0.2": None, "1.0.3": {}, "01.0.0": {}}
    assert releases_in({"versions": versions}, "demo") == [Release((1, 0, 0), "t", bytes(64))]


versions = st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12))


@given(st.lists(versions, min_size=1, unique=True))
def test_newest_of_each_major_against_sorting(drawn: list[tuple[int, int, int]]) -> None:
    chosen = [release.version for release in newest_of_each_major([Release(v, "", b"") for v in drawn], "demo")]
    expected = [max(v for v in drawn if v[0] == major) for major in sorted({v[0] for v in drawn}, reverse=True)]
    assert chosen == expected


@given(versions)
def test_a_version_survives_its_writing(version: tuple[int, int, int]) -> None:
    assert final_version(Release(version, "", b"").text) == version
    assert final_version(Release(version, "", b"").text + "-rc.1") is None
