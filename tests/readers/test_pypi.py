"""Which file of the index, and the cache of verified archives."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback_index import FakeIndex, make_archive, make_wheel

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.distributions import Index, read_members, read_wheel_member
from audit_pipeline.readers.package_downloads import fetch_sdist, fetch_wheel


def test_newest_final_release_that_is_not_yanked(fake_index: FakeIndex, tmp_path: Path) -> None:
    versions = ("1.9", "1.10", "1.11rc1", "1.12", "2.0.dev1")
    fake_index.projects["demo"] = {
        f"demo-{version}.tar.gz": make_archive(f"demo-{version}", {"a.txt": version}) for version in versions
    } | {"demo-3.0-py3-none-any.whl": b"wheel", "demo-4.0.zip": b"zip"}
    fake_index.yanked = {"demo-1.12.tar.gz"}
    archive = fetch_sdist("Demo", fake_index.index, tmp_path)
    assert (archive.version, archive.path, archive.fault) == ("1.10", tmp_path / "demo" / "demo-1.10.tar.gz", None)
    assert read_members(archive.path, lambda name: name == "a.txt") == {"a.txt": b"1.10"}


def test_an_archive_is_downloaded_once(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    first = fetch_sdist("demo", fake_index.index, tmp_path)
    second = fetch_sdist("demo", fake_index.index, tmp_path)
    assert first == second
    assert fake_index.downloads() == ["/files/demo-1.0.tar.gz"]
    first.path.write_bytes(b"damaged")
    third = fetch_sdist("demo", fake_index.index, tmp_path)
    assert third.path.read_bytes() == fake_index.projects["demo"]["demo-1.0.tar.gz"]
    assert len(fake_index.downloads()) == 2


def test_wrong_digest_is_refused_and_leaves_nothing(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    fake_index.wrong_digest = {"demo-1.0.tar.gz"}
    with pytest.raises(SourceError, match=r"demo-1\.0\.tar\.gz is not the file that the index describes"):
        fetch_sdist("demo", fake_index.index, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_download_cut_short_is_tried_again_and_then_refused(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a" * 5000})}
    fake_index.cut_short = {"demo-1.0.tar.gz"}
    with pytest.raises(SourceError, match="demo: "):
        fetch_sdist("demo", fake_index.index, tmp_path)
    assert len(fake_index.downloads()) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_transient_faults_pass_and_lasting_ones_do_not_retry(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    fake_index.faults = {"/simple/demo/": [503, 502], "/files/demo-1.0.tar.gz": [500]}
    assert fetch_sdist("demo", fake_index.index, tmp_path).version == "1.0"
    fake_index.requests.clear()
    fake_index.faults = {"/simple/demo/": [403, 403, 403]}
    assert "403" in str(fetch_sdist("demo", fake_index.index, tmp_path).fault)
    assert fake_index.requests == ["/simple/demo/"]


def test_server_down_uses_the_newest_intact_archive_in_the_cache(fake_index: FakeIndex, tmp_path: Path) -> None:
    for version in ("1.9", "1.10", "1.11"):
        name = f"demo-{version}.tar.gz"
        fake_index.projects["demo"] = {name: make_archive(f"demo-{version}", {"a.txt": version})}
        fetch_sdist("demo", fake_index.index, tmp_path)
    fake_index.stop()
    (tmp_path / "demo" / "demo-1.11.tar.gz").write_bytes(b"damaged since")
    (tmp_path / "demo" / "demo-2.0.tar.gz").write_bytes(b"put there by somebody, never verified")
    archive = fetch_sdist("demo", fake_index.index, tmp_path)
    assert archive.version == "1.10"
    assert archive.fault is not None
    assert archive.fault.startswith("newer version than 1.10 not looked up: ")


def test_server_down_without_cache(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.stop()
    with pytest.raises(SourceError, match="demo: no usable response from the package index"):
        fetch_sdist("demo", fake_index.index, tmp_path)


def test_unknown_project_and_project_without_source_distribution(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["wheels"] = {"wheels-1.0-py3-none-any.whl": b"wheel"}
    with pytest.raises(SourceError, match="absent: the package index has no such project"):
        fetch_sdist("absent", fake_index.index, tmp_path)
    with pytest.raises(SourceError, match=r"wheels: the package index lists no \.tar\.gz source distribution"):
        fetch_sdist("wheels", fake_index.index, tmp_path)


def test_passwords_in_addresses_stay_out_of_messages(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.faults = {"/simple/demo/": [401]}
    secret = fake_index.endpoint.replace("http://", "http://user:hunter2@")
    with pytest.raises(SourceError) as caught:
        fetch_sdist("demo", Index(endpoint=secret, timeout=5, attempts=1, pause=0), tmp_path)
    assert "hunter2" not in str(caught.value)


def wheels(*names: str) -> dict[str, bytes]:
    return {name: make_wheel({"demo/a.txt": name}) for name in names}


def test_a_given_version_is_asked_for_once(fake_index: FakeIndex, tmp_path: Path) -> None:
    names = ["demo-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"]
    fake_index.projects["demo"] = wheels(*names)
    assert fetch_wheel("demo", fake_index.index, tmp_path, "1.0").path.name == names[0]
    fake_index.requests.clear()
    again = fetch_wheel("demo", fake_index.index, tmp_path, "1")
    assert (again.version, again.fault, fake_index.requests) == ("1.0", None, [])
    again.path.write_bytes(b"damaged")
    assert read_wheel_member(fetch_wheel("demo", fake_index.index, tmp_path, "1.0").path, "demo/a.txt")
    with pytest.raises(SourceError, match=r"lists no wheel of version 3\.0"):
        fetch_wheel("demo", fake_index.index, tmp_path, "3.0")
    fake_index.stop()
    assert str(fetch_wheel("demo", fake_index.index, tmp_path).fault).startswith("newer version than 1.0 not looked")
    with pytest.raises(SourceError, match="demo: no usable answer"):
        fetch_wheel("demo", fake_index.index, tmp_path, "2.0")
