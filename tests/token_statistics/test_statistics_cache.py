"""Part files of the cache: flushing, damage, and concurrent processes."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.token_statistics import cache as cache_module
from audit_pipeline.token_statistics.cache import PartCache

ROOT = Path(__file__).parent.parent.parent
SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.list_(pa.field("item", pa.float32(), nullable=False)), nullable=False),
    ]
)


def row(key: str, *values: float) -> pa.Table:
    return pa.table({"key": [key], "value": [list(values)]}, SCHEMA)


def open_cache(folder: Path, **settings: float) -> PartCache:
    return PartCache(folder, SCHEMA, **settings)  # type: ignore[arg-type]


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


KEYS = {*"abcdefgh", "bb", "ccc", *(f"k{i}" for i in range(2000)), *(f"k{i:03d}" for i in range(100))}
"""Every key of these tests."""


def known(cache: PartCache) -> set[str]:
    return {*KEYS} - cache.missing(KEYS)


def stored(folder: Path) -> dict[str, list[float]]:
    cache = open_cache(folder)
    return {row["key"]: row["value"] for row in cache.read(known(cache)).to_pylist()}


def write_parts(folder: Path, keys_of_parts: list[list[str]]) -> None:
    for keys in keys_of_parts:
        cache = open_cache(folder)
        for key in keys:
            cache.append(row(key, float(len(key))))
        cache.flush()


def test_an_absent_folder_is_an_empty_cache(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "none")
    assert known(cache) == set()
    assert cache.read(["k"]).num_rows == 0
    assert cache.read([]).schema == SCHEMA
    cache.flush()
    assert known(cache) == set()


def test_rows_are_pending_until_enough_bytes(tmp_path: Path) -> None:
    # A key of one character and its offset take 5 bytes, a list of one value and its offset 8.
    cache = open_cache(tmp_path, flush_bytes=5 + 8 + 5 + 8 + 5 + 4, flush_seconds=1e9)
    cache.append(row("a", 1.0))
    assert known(cache) == set()
    cache.append(row("b", 2.0))
    assert known(cache) == set()
    cache.append(row("c"))
    assert known(cache) == {"a", "b", "c"}
    assert len(parts(tmp_path)) == 1
    cache.append(row("d"))
    assert known(cache) == {"a", "b", "c"}
    cache.flush()
    assert stored(tmp_path) == {"a": [1.0], "b": [2.0], "c": [], "d": []}
    cache.flush()
    assert len(parts(tmp_path)) == 2


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the names of the parts that are read from now on, in order."""
    read: list[str] = []
    real = cache_module.open_parquet

    def counted(path: Path, **how: Any) -> pq.ParquetFile:
        read.append(path.name)
        return real(path, **how)

    monkeypatch.setattr(cache_module, "open_parquet", counted)
    return read


def test_the_keys_of_a_part_are_read_once(tmp_path: Path, reads: list[str]) -> None:
    write_parts(tmp_path, [["a", "bb"], ["ccc"]])
    cache = open_cache(tmp_path)
    names = [path.name for path in parts(tmp_path)]
    assert cache.missing(["a", "nowhere"]) == {"nowhere"}
    assert sorted(reads) == names
    assert known(cache) == {"a", "bb", "ccc"}
    cache.append(row("d"))
    cache.flush()
    assert known(cache) == {"a", "bb", "ccc", "d"}
    assert sorted(reads) == names, "what was written here is known without reading it"
    write_parts(tmp_path, [["e"]])
    assert known(cache) == {"a", "bb", "ccc", "d", "e"}, "and so is what another process has written"
    assert len(reads) == 3


def test_only_parts_with_a_requested_row_are_read(tmp_path: Path, reads: list[str]) -> None:
    write_parts(tmp_path, [["a", "bb"], ["ccc"], ["d"]])
    cache = open_cache(tmp_path)
    known(cache)
    reads.clear()
    assert cache.read(["bb", "d"]).column("key").to_pylist() == ["bb", "d"]
    assert reads == [parts(tmp_path)[0].name, parts(tmp_path)[2].name]
    write_parts(tmp_path, [["e"]])
    assert cache.read(["e"]).column("key").to_pylist() == ["e"], "a part with unknown keys may contain it"


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("damage", ["cut", "empty", "garbage", "column", "flipped bit"])
def test_a_damaged_part_is_set_aside(tmp_path: Path, damage: str, looks: bool) -> None:
    write_parts(tmp_path, [["a"], ["bb"]])
    broken, whole = parts(tmp_path)
    for part in (broken, whole):
        assert part.stem.split("-")[2] == file_sha256(part)[:32], "a part is named after its bytes"
    content = bytearray(broken.read_bytes())
    if damage == "column":
        column = pq.ParquetFile(broken).metadata.row_group(0).column(1)
        start = column.dictionary_page_offset or column.data_page_offset
        content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    elif damage == "flipped bit":
        # A bit of the footer, which has no checksum. The change does not affect the pages.
        content[content.index(b"parquet-cpp")] ^= 1
    else:
        changed = {"cut": content[:-7], "empty": bytearray(), "garbage": b"PAR1" + bytes(100) + b"PAR1"}
        content = bytearray(changed[damage])
    broken.write_bytes(content)
    cache = open_cache(tmp_path)
    found = known(cache) if looks else {*cache.read(["a", "bb"]).column("key").to_pylist()}
    assert found == {"bb"}
    aside = broken.with_suffix(".unreadable")
    assert cache.unreadable == [aside]
    assert aside.exists()
    assert parts(tmp_path) == [whole]
    assert known(open_cache(tmp_path)) == {"bb"}


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_an_unreachable_part_does_not_count_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, [["a"]])

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cache_module, "open_parquet", refuse)
    with pytest.raises(PermissionError):
        known(open_cache(tmp_path))
    assert len(parts(tmp_path)) == 1


def test_a_full_disk_raises_an_error_and_keeps_earlier_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_parts(tmp_path, [["a"]])
    cache = open_cache(tmp_path)
    cache.append(row("b", 2.0))

    def full(path: Path, table: pa.Table) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(cache_module, "write_parquet", full)
        with pytest.raises(OSError, match="No space left"):
            cache.flush()
    assert stored(tmp_path) == {"a": [1.0]}
    cache.flush()
    assert stored(tmp_path) == {"a": [1.0], "b": [2.0]}


WRITER = """
import sys
from pathlib import Path
import pyarrow as pa
from audit_pipeline.token_statistics.cache import PartCache
schema = pa.schema([pa.field("key", pa.string(), nullable=False),
                    pa.field("value", pa.list_(pa.field("item", pa.float32(), nullable=False)), nullable=False)])
cache = PartCache(Path(sys.argv[1]), schema)
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    cache.append(pa.table({"key": [f"k{i:03d}"], "value": [[float(i)]]}, schema))
    cache.flush()
assert not cache.unreadable
"""


def test_two_writers_and_a_reader_at_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), *map(str, span)], cwd=ROOT)
        for span in ((0, 60), (40, 100))
    ]
    seen: set[str] = set()
    deadline = time.monotonic() + 60
    while any(writer.poll() is None for writer in writers):
        assert time.monotonic() < deadline
        reader = open_cache(tmp_path)
        now = reader.read(f"k{i:03d}" for i in range(100))
        keys = now.column("key").to_pylist()
        assert len(keys) == len(set(keys)), "a key stands twice"
        assert seen <= set(keys), "a row was gone for a moment"
        assert not reader.unreadable
        seen = set(keys)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert stored(tmp_path) == {f"k{i:03d}": [float(i)] for i in range(100)}
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []
