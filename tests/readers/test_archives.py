"""Reading what is in an archive: what is refused, and the limits."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from loopback_index import make_archive

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.distributions import read_members, read_wheel_member


def test_regular_files_are_read_and_nothing_is_written(tmp_path: Path) -> None:
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


def test_a_member_that_is_not_in_the_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo/here", b"0")
    assert read_wheel_member(wheel, "demo/here") == b"0"
    with pytest.raises(SourceError, match="does not contain the file demo/gone"):
        read_wheel_member(wheel, "demo/gone")
    wheel.write_bytes(b"no wheel")
    with pytest.raises(SourceError, match="demo/here cannot be read"):
        read_wheel_member(wheel, "demo/here")
