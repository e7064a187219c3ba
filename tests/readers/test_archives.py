"""Reading what is in an archive: what is refused, and the limits."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from loopback_index import make_archive

from audit_pipeline.errors import SourceError
from audit_pipeline.readers import archives
from audit_pipeline.readers.archives import read_members, read_wheel_member


def hostile_archive(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, size in (
            ("demo/good.txt", 4),
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


def is_text(name: str) -> bool:
    return name.endswith(".txt")


def test_what_is_no_plain_file_is_refused_by_name_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST_MEMBER_BYTES", 50)
    files, refused = read_members(hostile_archive(tmp_path / "h.tar.gz"), is_text)
    assert files == {"good.txt": b"xxxx", "../../up.txt": b"xxxx"}
    assert dict(refused) == {
        "big.txt": "99 bytes, the limit is 50",
        "soft.txt": "not a regular file",
        "hard.txt": "not a regular file",
        "pipe.txt": "not a regular file",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["h.tar.gz"]


def test_archives_over_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "demo-1.0.tar.gz"
    path.write_bytes(make_archive("demo-1.0", {"a.txt": "a" * 600, "b.txt": "b" * 600, "bulk.bin": b"\0" * 300_000}))
    monkeypatch.setattr(archives, "_MOST_BYTES", 1200)
    assert sorted(read_members(path, is_text)[0]) == ["a.txt", "b.txt"]
    monkeypatch.setattr(archives, "_MOST_BYTES", 1199)
    with pytest.raises(SourceError, match="exceeds 1199 bytes"):
        read_members(path, is_text)


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
