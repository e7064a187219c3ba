"""Which index, which file, the cache, and reading archives that may be hostile."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from loopback_index import FakeIndex, make_archive

from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.archives import Limits, read_members, read_wheel_member
from audit_pipeline.fetch.index import Index, configured_index, index_from, pip_settings
from audit_pipeline.fetch.pypi import fetch_archive, fetch_wheel


def test_settings_of_pip_in_its_order_of_precedence() -> None:
    listing = """
:env:.timeout='180'
global.cert='/etc/ssl/one.pem'
global.extra-index-url='file:///a file:///b'
global.index-url='https://global.invalid/simple'
install.index-url='https://install.invalid/simple'
freeze.index-url='https://freeze.invalid/simple'
something else
"""
    settings = pip_settings(listing)
    assert settings["index-url"] == "https://install.invalid/simple"
    assert settings["cert"] == "/etc/ssl/one.pem"
    assert pip_settings(listing + ":env:.index-url='https://env.invalid/'")["index-url"] == "https://env.invalid/"


def test_environment_goes_before_settings_and_both_before_the_default() -> None:
    settings = {"index-url": "https://set.invalid/", "cert": "set.pem", "proxy": "http://set.invalid"}
    environment = {"PIP_INDEX_URL": "https://env.invalid/", "PIP_CERT": "env.pem", "PIP_PROXY": "http://env.invalid"}
    assert index_from(settings, environment) == Index("https://env.invalid/", "env.pem", "http://env.invalid")
    assert index_from(settings, {"PIP_INDEX_URL": ""}) == Index("https://set.invalid/", "set.pem", "http://set.invalid")
    assert index_from({}, {}) == Index(None, None, None)


def test_pip_is_asked_for_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip", reason="this environment has no pip to ask")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://from-file.invalid/simple\ncert = /from/file.pem\n")
    for name in ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    index = configured_index()
    assert (index.endpoint, index.certificates) == ("https://from-file.invalid/simple", "/from/file.pem")


def test_newest_final_release_that_is_not_yanked(fake_index: FakeIndex, tmp_path: Path) -> None:
    versions = ("1.9", "1.10", "1.11rc1", "1.12", "2.0.dev1")
    fake_index.projects["demo"] = {
        f"demo-{version}.tar.gz": make_archive(f"demo-{version}", {"a.txt": version}) for version in versions
    } | {"demo-3.0-py3-none-any.whl": b"wheel", "demo-4.0.zip": b"zip"}
    fake_index.yanked = {"demo-1.12.tar.gz"}
    archive = fetch_archive("Demo", fake_index.index, tmp_path)
    assert (archive.version, archive.path, archive.fault) == ("1.10", tmp_path / "demo" / "demo-1.10.tar.gz", None)
    assert read_members(archive.path, lambda name: name == "a.txt").files == {"a.txt": b"1.10"}


def test_an_archive_is_downloaded_once(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    first = fetch_archive("demo", fake_index.index, tmp_path)
    second = fetch_archive("demo", fake_index.index, tmp_path)
    assert first == second
    assert fake_index.downloads() == ["/files/demo-1.0.tar.gz"]
    first.path.write_bytes(b"damaged")
    third = fetch_archive("demo", fake_index.index, tmp_path)
    assert third.path.read_bytes() == fake_index.projects["demo"]["demo-1.0.tar.gz"]
    assert len(fake_index.downloads()) == 2


def test_wrong_digest_is_refused_and_leaves_nothing(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    fake_index.wrong_digest = {"demo-1.0.tar.gz"}
    with pytest.raises(SourceError, match=r"demo-1\.0\.tar\.gz is not the file that the index describes"):
        fetch_archive("demo", fake_index.index, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_wrong_digest_of_a_newer_version_leaves_the_cached_one_in_use(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    fetch_archive("demo", fake_index.index, tmp_path)
    fake_index.projects["demo"]["demo-2.0.tar.gz"] = make_archive("demo-2.0", {"a.txt": "b"})
    fake_index.wrong_digest = {"demo-2.0.tar.gz"}
    archive = fetch_archive("demo", fake_index.index, tmp_path)
    assert archive.version == "1.0"
    assert archive.fault is not None
    assert "demo-2.0.tar.gz is not the file" in archive.fault


def test_a_download_cut_short_is_tried_again_and_then_refused(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a" * 5000})}
    fake_index.cut_short = {"demo-1.0.tar.gz"}
    with pytest.raises(SourceError, match="demo: "):
        fetch_archive("demo", fake_index.index, tmp_path)
    assert len(fake_index.downloads()) == 3
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_transient_faults_pass_and_lasting_ones_do_not_retry(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a"})}
    fake_index.faults = {"/simple/demo/": [503, 502], "/files/demo-1.0.tar.gz": [500]}
    assert fetch_archive("demo", fake_index.index, tmp_path).version == "1.0"
    fake_index.requests.clear()
    fake_index.faults = {"/simple/demo/": [403, 403, 403]}
    assert "403" in str(fetch_archive("demo", fake_index.index, tmp_path).fault)
    assert fake_index.requests == ["/simple/demo/"]


def test_server_down_uses_the_newest_intact_archive_in_the_cache(fake_index: FakeIndex, tmp_path: Path) -> None:
    for version in ("1.9", "1.10", "1.11"):
        name = f"demo-{version}.tar.gz"
        fake_index.projects["demo"] = {name: make_archive(f"demo-{version}", {"a.txt": version})}
        fetch_archive("demo", fake_index.index, tmp_path)
    fake_index.stop()
    (tmp_path / "demo" / "demo-1.11.tar.gz").write_bytes(b"damaged since")
    (tmp_path / "demo" / "demo-2.0.tar.gz").write_bytes(b"put there by somebody, never verified")
    archive = fetch_archive("demo", fake_index.index, tmp_path)
    assert archive.version == "1.10"
    assert archive.fault is not None
    assert archive.fault.startswith("newer version than 1.10 not looked up: ")


def test_server_down_without_cache(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.stop()
    with pytest.raises(SourceError, match="demo: no usable answer from the package index"):
        fetch_archive("demo", fake_index.index, tmp_path)


def test_unknown_project_and_project_without_source_distribution(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["wheels"] = {"wheels-1.0-py3-none-any.whl": b"wheel"}
    with pytest.raises(SourceError, match="absent: the package index has no such project"):
        fetch_archive("absent", fake_index.index, tmp_path)
    with pytest.raises(SourceError, match=r"wheels: the package index lists no \.tar\.gz source distribution"):
        fetch_archive("wheels", fake_index.index, tmp_path)


def test_passwords_in_addresses_stay_out_of_messages(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.faults = {"/simple/demo/": [401]}
    secret = fake_index.endpoint.replace("http://", "http://user:hunter2@")
    with pytest.raises(SourceError) as caught:
        fetch_archive("demo", Index(endpoint=secret, timeout=5, attempts=1, pause=0), tmp_path)
    assert "hunter2" not in str(caught.value)


def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    index = Index(endpoint="https://127.0.0.1:1/simple/", certificates=str(tmp_path / "absent.pem"), pause=0)
    with pytest.raises(SourceError, match=r"certificates .* are missing: .*absent\.pem"):
        fetch_archive("demo", index, tmp_path)


def hostile_archive(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, size in (
            ("demo/good.txt", 4),
            ("/etc/absolute.txt", 4),
            ("demo/../../up.txt", 4),
            ("demo/big.txt", 99),
        ):
            info = tarfile.TarInfo(name)
            info.size = size
            tar.addfile(info, io.BytesIO(b"x" * size))
        for name, kind in (
            ("demo/soft.txt", tarfile.SYMTYPE),
            ("demo/hard.txt", tarfile.LNKTYPE),
            ("demo/pipe.txt", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    return path


def test_members_that_lead_elsewhere_are_refused_by_name(tmp_path: Path) -> None:
    members = read_members(
        hostile_archive(tmp_path / "h.tar.gz"), lambda name: name.endswith(".txt"), Limits(member=50)
    )
    assert members.files == {"good.txt": b"xxxx"}
    assert dict(members.refused) == {
        "/etc/absolute.txt": "not a path inside the archive's folder",
        "demo/../../up.txt": "not a path inside the archive's folder",
        "big.txt": "99 bytes, the limit is 50",
        "soft.txt": "not a regular file",
        "hard.txt": "not a regular file",
        "pipe.txt": "not a regular file",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.tar.gz"]


def test_archives_over_the_limits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(make_archive("demo-1.0", {"a.txt": "a" * 600, "b.txt": "b" * 600, "bulk.bin": b"\0" * 300_000}))
    read_members(path, lambda name: name.endswith(".txt"), Limits(wanted=1200))
    with pytest.raises(SourceError, match="exceeds 1199 bytes"):
        read_members(path, lambda name: name.endswith(".txt"), Limits(wanted=1199))
    with pytest.raises(SourceError, match="unpacks to more than the limit"):
        read_members(path, lambda name: name.endswith(".txt"), Limits(stream=200_000))


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_broken_archives_are_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "demo-1.0.tar.gz"
    noise = bytes(range(256)) * 8
    path.write_bytes(make_archive("demo-1.0", {"a.txt": noise, "b.txt": noise[::-1]})[:keep])
    with pytest.raises(SourceError, match="the archive cannot be read"):
        read_members(path, lambda name: True)
    path.write_bytes(b"this is no archive at all")
    with pytest.raises(SourceError, match="the archive cannot be read"):
        read_members(path, lambda name: True)


def make_wheel(files: Mapping[str, str | bytes]) -> bytes:
    """A real .whl with ``files``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def wheels(*names: str) -> dict[str, bytes]:
    return {name: make_wheel({"demo/a.txt": name}) for name in names}


def test_the_newest_wheel_of_a_final_release_that_is_not_yanked(fake_index: FakeIndex, tmp_path: Path) -> None:
    names = [f"demo-{version}-py3-none-any.whl" for version in ("1.9", "1.10", "1.11rc1", "1.12")]
    fake_index.projects["demo"] = {**wheels(*names), "demo-2.0.tar.gz": b"source", "demo-3.0.whl": b"no wheel's name"}
    fake_index.yanked = {names[-1]}
    wheel = fetch_wheel("Demo", fake_index.index, tmp_path)
    assert (wheel.version, wheel.path, wheel.fault) == ("1.10", tmp_path / "demo" / names[1], None)
    assert read_wheel_member(wheel.path, "demo/a.txt") == names[1].encode()


def test_a_wheel_for_every_platform_goes_first(fake_index: FakeIndex, tmp_path: Path) -> None:
    names = ["demo-1.0-cp311-cp311-manylinux_2_17_x86_64.whl", "demo-1.0-py3-none-any.whl"]
    fake_index.projects["demo"] = wheels(*names)
    assert fetch_wheel("demo", fake_index.index, tmp_path).path.name == names[1]
    fake_index.projects["demo"] = wheels(names[0], "demo-1.0-cp310-cp310-win_amd64.whl")
    assert fetch_wheel("demo", fake_index.index, tmp_path).path.name == "demo-1.0-cp310-cp310-win_amd64.whl"


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


def test_without_the_index_a_cached_wheel_stands_in_and_says_so(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = wheels("demo-1.0-py3-none-any.whl")
    fetch_wheel("demo", fake_index.index, tmp_path)
    (tmp_path / "demo" / "demo-9.0-py3-none-any.whl").write_bytes(b"put there by somebody, never verified")
    fake_index.stop()
    wheel = fetch_wheel("demo", fake_index.index, tmp_path)
    assert wheel.version == "1.0"
    assert wheel.fault is not None
    assert wheel.fault.startswith("newer version than 1.0 not looked up: ")
    with pytest.raises(SourceError, match="demo: no usable answer"):
        fetch_wheel("demo", fake_index.index, tmp_path, "2.0")


def test_a_wheel_with_a_wrong_digest_is_refused(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = wheels("demo-1.0-py3-none-any.whl")
    fake_index.wrong_digest = {"demo-1.0-py3-none-any.whl"}
    with pytest.raises(SourceError, match="is not the file that the index describes"):
        fetch_wheel("demo", fake_index.index, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_members_of_a_wheel_that_are_not_read(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    link = zipfile.ZipInfo("demo/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("demo/bomb", b"0" * 200_000)
        archive.writestr("demo/", b"")
        archive.writestr(link, "/etc/hostname")
    assert wheel.stat().st_size < 2000
    for name, told in (
        ("demo/bomb", "unpacks to more than 100000 bytes"),
        ("demo/", "is not a plain file"),
        ("demo/link", "is not a plain file"),
        ("demo/gone", "holds no file demo/gone"),
        ("../demo/bomb", "holds no file"),
    ):
        with pytest.raises(SourceError, match=told):
            read_wheel_member(wheel, name, 100_000)
    assert len(read_wheel_member(wheel, "demo/bomb", 200_000)) == 200_000


def test_a_wheel_that_says_a_smaller_size_than_it_unpacks_to_is_refused(tmp_path: Path) -> None:
    content = make_wheel({"demo/a": b"0" * 200_000})
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    size = (200_000).to_bytes(4, "little")
    assert content.count(size) == 2
    wheel.write_bytes(content.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(SourceError, match="demo/a cannot be read"):
        read_wheel_member(wheel, "demo/a", 100_000)
    wheel.write_bytes(content[:-30])
    with pytest.raises(SourceError, match="demo/a cannot be read"):
        read_wheel_member(wheel, "demo/a")
