"""Distributions of Python packages: pip's settings, the choice of a file, the cache, and reading archives."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from loopback_index import FakeIndex, make_archive
from made_epubs import packed

from audit_pipeline.errors import SourceError
from audit_pipeline.readers import distributions
from audit_pipeline.readers.distributions import Index, parse_pip_settings, read_members, read_wheel_member
from audit_pipeline.readers.package_downloads import fetch_sdist, fetch_wheel

PIP_VARIABLES = ("PIP_INDEX_URL", "PIP_CERT", "PIP_PROXY")
DEMO = {"demo-1.0.tar.gz": make_archive("demo-1.0", {"a.txt": "a" * 5000})}


def test_pip_settings_follow_the_precedence_of_sections() -> None:
    listing = """
:env:.index-url='https://env.invalid/'
global.cert='/etc/ssl/one.pem'
global.extra-index-url='file:///a file:///b'
global.index-url='https://global.invalid/simple'
install.index-url='https://install.invalid/simple'
freeze.index-url='https://freeze.invalid/simple'
something else
"""
    settings = parse_pip_settings(listing)
    assert settings["index-url"] == "https://install.invalid/simple"
    assert settings["cert"] == "/etc/ssl/one.pem"


def test_environment_variables_precede_the_configuration_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pip", reason="this environment has no pip")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://from-file.invalid/simple\ncert = /from/file.pem\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    for name in PIP_VARIABLES:
        monkeypatch.setenv(name, "")
    listing = distributions._run_pip_config_list()
    monkeypatch.setattr(distributions, "_run_pip_config_list", lambda: listing)
    assert distributions.read_configured_index() == Index("https://from-file.invalid/simple", "/from/file.pem", None)
    for name in PIP_VARIABLES:
        monkeypatch.setenv(name, f"https://{name}.invalid/")
    index = distributions.read_configured_index()
    assert [index.endpoint, index.certificates, index.proxy] == [f"https://{name}.invalid/" for name in PIP_VARIABLES]


def test_regular_files_of_an_archive_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "demo-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, kind in (
            ("demo/good.txt", tarfile.REGTYPE),
            ("demo/../../up.txt", tarfile.REGTYPE),
            ("demo/good.md", tarfile.REGTYPE),
            ("demo/soft.txt", tarfile.SYMTYPE),
            ("demo/pipe.txt", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = 4 * (kind == tarfile.REGTYPE), kind, "/etc/passwd"
            tar.addfile(info, io.BytesIO(b"xxxx"))
    files = read_members(path, lambda name: name.endswith(".txt"))
    assert files == {"good.txt": b"xxxx", "../../up.txt": b"xxxx"}
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("size", [0, 10, 200, -30, None])
def test_broken_archives_are_refused(tmp_path: Path, size: int | None) -> None:
    noise = bytes(range(256)) * 8
    archive = make_archive("demo-1.0", {"a.txt": noise, "b.txt": noise[::-1]})
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(b"no archive" if size is None else archive[:size])
    with pytest.raises(SourceError, match="the archive cannot be read"):
        read_members(path, lambda name: True)


def test_a_missing_file_of_a_wheel_and_a_broken_wheel_are_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    wheel.write_bytes(packed({"demo/here": b"0"}))
    assert read_wheel_member(wheel, "demo/here") == b"0"
    with pytest.raises(SourceError, match="does not contain the file demo/gone"):
        read_wheel_member(wheel, "demo/gone")
    wheel.write_bytes(b"no wheel")
    with pytest.raises(SourceError, match="demo/here cannot be read"):
        read_wheel_member(wheel, "demo/here")


def test_the_newest_final_release_is_fetched_unless_it_is_yanked(fake_index: FakeIndex, tmp_path: Path) -> None:
    versions = ("1.9", "1.10", "1.11rc1", "1.12", "2.0.dev1")
    fake_index.projects["demo"] = {
        f"demo-{version}.tar.gz": make_archive(f"demo-{version}", {"a.txt": version}) for version in versions
    } | {"demo-3.0-py3-none-any.whl": b"wheel", "demo-4.0.zip": b"zip"}
    fake_index.yanked = {"demo-1.12.tar.gz"}
    archive = fetch_sdist("Demo", fake_index.index, tmp_path)
    assert (archive.version, archive.path, archive.fault) == ("1.10", tmp_path / "demo" / "demo-1.10.tar.gz", None)
    assert read_members(archive.path, lambda name: name == "a.txt") == {"a.txt": b"1.10"}


def test_an_archive_is_downloaded_once_unless_it_is_damaged(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = DEMO
    first = fetch_sdist("demo", fake_index.index, tmp_path)
    assert fetch_sdist("demo", fake_index.index, tmp_path) == first
    assert fake_index.downloads() == ["/files/demo-1.0.tar.gz"]
    first.path.write_bytes(b"damaged")
    assert fetch_sdist("demo", fake_index.index, tmp_path).path.read_bytes() == DEMO["demo-1.0.tar.gz"]
    assert len(fake_index.downloads()) == 2


@pytest.mark.parametrize(
    ("problem", "message", "attempts"),
    [
        ("wrong_digest", r"the sha256 of demo-1\.0\.tar\.gz is not the sha256 in the package index", 1),
        ("cut_short", "demo: ", 3),
    ],
)
def test_a_wrong_digest_or_a_truncated_download_leaves_no_file(
    fake_index: FakeIndex, tmp_path: Path, problem: str, message: str, attempts: int
) -> None:
    fake_index.projects["demo"] = DEMO
    setattr(fake_index, problem, {"demo-1.0.tar.gz"})
    with pytest.raises(SourceError, match=message):
        fetch_sdist("demo", fake_index.index, tmp_path)
    assert len(fake_index.downloads()) == attempts
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_only_transient_faults_are_retried(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["demo"] = DEMO
    fake_index.faults = {"/simple/demo/": [503, 502], "/files/demo-1.0.tar.gz": [500]}
    assert fetch_sdist("demo", fake_index.index, tmp_path).version == "1.0"
    fake_index.requests.clear()
    fake_index.faults = {"/simple/demo/": [403, 403, 403]}
    assert "403" in str(fetch_sdist("demo", fake_index.index, tmp_path).fault)
    assert fake_index.asked() == ["/simple/demo/"]


def test_without_a_server_the_newest_intact_archive_of_the_cache_is_used(fake_index: FakeIndex, tmp_path: Path) -> None:
    for version in ("1.9", "1.10", "1.11"):
        name = f"demo-{version}.tar.gz"
        fake_index.projects["demo"] = {name: make_archive(f"demo-{version}", {"a.txt": version})}
        fetch_sdist("demo", fake_index.index, tmp_path)
    fake_index.stop()
    (tmp_path / "demo" / "demo-1.11.tar.gz").write_bytes(b"damaged since")
    (tmp_path / "demo" / "demo-2.0.tar.gz").write_bytes(b"put there by somebody, never verified")
    archive = fetch_sdist("demo", fake_index.index, tmp_path)
    assert archive.version == "1.10"
    assert str(archive.fault).startswith("the package index could not be searched for versions newer than 1.10: ")
    with pytest.raises(SourceError, match="other: the package index returned no usable response"):
        fetch_sdist("other", fake_index.index, tmp_path)


def test_an_unknown_project_and_a_project_without_sdist_are_refused(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.projects["wheels"] = {"wheels-1.0-py3-none-any.whl": b"wheel"}
    with pytest.raises(SourceError, match="absent: the package index has no project with this name"):
        fetch_sdist("absent", fake_index.index, tmp_path)
    with pytest.raises(SourceError, match=r"wheels: the package index lists no \.tar\.gz source distribution"):
        fetch_sdist("wheels", fake_index.index, tmp_path)


def test_messages_contain_no_password_of_an_address(fake_index: FakeIndex, tmp_path: Path) -> None:
    fake_index.faults = {"/simple/demo/": [401]}
    secret = fake_index.url.replace("http://", "http://user:hunter2@")
    with pytest.raises(SourceError) as caught:
        fetch_sdist("demo", Index(endpoint=f"{secret}/simple/", timeout=5, attempts=1, pause=0), tmp_path)
    assert "hunter2" not in str(caught.value)


def test_a_required_version_is_requested_once(fake_index: FakeIndex, tmp_path: Path) -> None:
    names = ["demo-1.0-py3-none-any.whl", "demo-2.0-py3-none-any.whl"]
    fake_index.projects["demo"] = {name: packed({"demo/a.txt": name}) for name in names}
    assert fetch_wheel("demo", fake_index.index, tmp_path, "1.0").path.name == names[0]
    fake_index.requests.clear()
    again = fetch_wheel("demo", fake_index.index, tmp_path, "1")
    assert (again.version, again.fault, fake_index.asked()) == ("1.0", None, [])
    again.path.write_bytes(b"damaged")
    assert read_wheel_member(fetch_wheel("demo", fake_index.index, tmp_path, "1.0").path, "demo/a.txt")
    with pytest.raises(SourceError, match=r"lists no wheel of version 3\.0"):
        fetch_wheel("demo", fake_index.index, tmp_path, "3.0")
    fake_index.stop()
    with pytest.raises(SourceError, match="demo: the package index returned no usable response"):
        fetch_wheel("demo", fake_index.index, tmp_path, "2.0")
