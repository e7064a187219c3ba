"""Texts that are members by identity: which identities a text has, what a list may hold, and what goes wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.errors import DataError
from audit_pipeline.overlap import identities
from audit_pipeline.overlap.identities import (
    IdentityMatches,
    compute_digest,
    match_identities,
    normalise_escapes,
    normalise_urls,
)

# `echo hello | git hash-object --stdin`, and sha1sum and sha256sum of the same six bytes.
HELLO = "hello\n"
GIT_SHA1 = "ce013625030ba8dba906f756967f9e9ca394464a"
SHA1 = "f572d396fae9206628714fb2ce00f72e94f2258f"
SHA256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
TEXTS = ["other\n", HELLO]
URLS = ["https://example.org/other", "https://www.example.org/hello/"]


def write(path: Path, lines: Sequence[str]) -> Path:
    content = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".zst":
        content = pa.compress(content, codec="zstd", asbytes=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def match(path: Path, column: str | None = None) -> IdentityMatches:
    return match_identities(TEXTS, URLS, path, column)


def test_digests_are_those_of_the_usual_tools() -> None:
    assert compute_digest(HELLO, "git sha1") == GIT_SHA1
    assert compute_digest(HELLO, "sha1") == SHA1
    assert compute_digest(HELLO, "sha256") == SHA256
    assert compute_digest("", "git sha1") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    # Bytes are counted, not characters.
    assert compute_digest("é", "git sha1") == hashlib.sha1(b"blob 2\0\xc3\xa9").hexdigest()
    with pytest.raises(ValueError, match="no digest"):
        compute_digest(HELLO, "url")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (SHA256, "sha256"),
        (f"sha256:{SHA256}", "sha256"),
        (f"  {SHA256.upper()}\t", "sha256"),
        (SHA1, "sha1"),
        (f"SHA1:{SHA1}", "sha1"),
        (GIT_SHA1, "git sha1"),
        (f"swh:1:cnt:{GIT_SHA1}", "git sha1"),
        ("http://EXAMPLE.org:443/hello#top", "url"),
    ],
)
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".txt.zst"])
def test_every_form_of_an_identity_is_found_and_named(tmp_path: Path, line: str, kind: str, suffix: str) -> None:
    found = match(write(tmp_path / f"ids{suffix}", ["0" * 40, line, "", "https://example.org/"]))
    assert found == IdentityMatches((None, kind), 3, 0, None)  # type: ignore[arg-type]


def test_of_several_the_surest_is_named_and_rows_that_are_none_are_counted(tmp_path: Path) -> None:
    ids = write(tmp_path / "ids.txt", ["no id", GIT_SHA1, URLS[1], "ftp://example.org/hello", SHA1, SHA1[:-1], URLS[0]])
    assert match(ids) == IdentityMatches(("url", "sha1"), 4, 3, "no id")


def test_the_same_text_twice_and_one_without_url_are_looked_up_all_the_same(tmp_path: Path) -> None:
    ids = write(tmp_path / "ids.txt", [SHA1])
    found = match_identities([HELLO, "other", HELLO], [None, "no url", None], ids)
    assert found.kinds == ("sha1", None, "sha1")
    assert match_identities([], [], ids).kinds == ()


@pytest.mark.parametrize("block", [1, 7, 64])
def test_lines_are_whole_wherever_a_block_ends(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "_BLOCK", block)
    path = tmp_path / "ids.txt"
    path.write_bytes(f"{'a' * 40}\r\n{GIT_SHA1}\r\n\r\n{URLS[0]}".encode())
    assert match(path) == IdentityMatches(("url", "git sha1"), 3, 0, None)


def test_a_byte_order_mark_is_no_part_of_an_id_and_utf16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(f"{SHA1}\n".encode("utf-8-sig"))
    assert match(path).kinds == (None, "sha1")
    path.write_bytes(f"{SHA1}\n".encode("utf-16"))
    with pytest.raises(DataError, match="is in UTF-16; save it as UTF-8"):
        match(path)


def test_a_line_that_is_not_utf8_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_bytes(b"\n\xff\xfe\xfd\n" + SHA1.encode() + b"\n")
    assert match(path) == IdentityMatches((None, "sha1"), 1, 1, None)


URL_PAIRS = [
    ("HTTP://Example.ORG", "example.org"),
    ("https://www.example.org/", "example.org"),
    ("https://example.org:443/?#x", "example.org"),
    ("http://example.org:80/A/b//", "example.org/A/b"),
    ("https://example.org:8080/", "example.org:8080"),
    ("https://example.org/a//b/?q=1/&r=#f", "example.org/a//b?q=1/&r="),
    ("https://example.org?q", "example.org?q"),
    (" https://example.org/%7Euser/%c3%a9%2f ", "example.org/~user/%C3%A9%2F"),
    ("https://example.org/~user/é%2F", "example.org/~user/%C3%A9%2F"),
    ("https://example.org/a b%", "example.org/a%20b%"),
    ("https://www.www.org/", "www.org"),
    ("ftp://example.org/", None),
    ("example.org/a", None),
    ("https://", None),
    ("release_notes/a.rst", None),
    (None, None),
]


def test_urls_are_compared_as_the_module_says() -> None:
    given_urls = pa.array([url for url, _ in URL_PAIRS], pa.large_string())
    assert normalise_urls(given_urls).to_pylist() == [normal for _, normal in URL_PAIRS]


@given(st.text())
def test_normalising_twice_changes_nothing(path: str) -> None:
    once = normalise_escapes(path.encode(errors="ignore").decode())
    assert normalise_escapes(once) == once
    [normal] = normalise_urls(pa.array([f"https://example.org/{once}"], pa.large_string())).to_pylist()
    assert normalise_urls(pa.array([f"http://{normal}"], pa.large_string())).to_pylist() == [normal]


def test_a_column_of_a_table_is_named_or_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"blob_id": [GIT_SHA1, None, "x"], "size": [1, 2, 3]}), path)
    assert match(path, "blob_id") == IdentityMatches((None, "git sha1"), 1, 2, "x")
    with pytest.raises(DataError, match="say which column holds the ids; the columns are: blob_id, size"):
        match(path)
    with pytest.raises(DataError, match="no column 'sha1'; the columns are: blob_id, size"):
        match(path, "sha1")
    with pytest.raises(DataError, match="no row is a url, a SHA-1 or a SHA-256"):
        match(path, "size")
    pq.write_table(pa.table({"anything": [SHA1]}), path)
    assert match(path).kinds == (None, "sha1")


def test_lines_of_json_have_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "ids.jsonl.gz"
    rows = [{"url": URLS[0], "n": 1}, {"n": 2}, {"url": 7}, {"url": URLS[1]}]
    write(path, [*map(json.dumps, rows), "{broken"])
    assert match(path, "url") == IdentityMatches(("url", "url"), 2, 3, None)
    with pytest.raises(DataError, match="no row has a column 'id'"):
        match(path, "id")
    with pytest.raises(DataError, match="say which column"):
        match(path)


def test_a_list_that_cannot_be_read_to_its_end_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "ids.txt.gz", [SHA1] * 100_000)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"ids\.txt\.gz: is not a readable \.gz file"):
        match(path)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_list_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "ids.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=r"holds no rows|no row is a url, a SHA-1 or a SHA-256; give a file"):
        match(path)


def test_a_list_without_ids_shows_its_first_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its first row: 'chapter one'; give a file with one of these a row"):
        match(write(tmp_path / "ids.txt", ["chapter one", "chapter two"]))
    with pytest.raises(DataError, match="no such file"):
        match(tmp_path / "nowhere.txt")


def test_a_line_longer_than_any_id_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "LINE_LIMIT", 100)
    monkeypatch.setattr(identities, "_BLOCK", 60)
    with pytest.raises(DataError, match="has a line of more than 64 MiB"):
        match(write(tmp_path / "ids.txt", ["x" * 1000]))


@given(st.from_regex(r"(?i)https?://.{0,20}", fullmatch=True))
def test_whatever_begins_as_a_url_with_a_host_can_be_compared(url: str) -> None:
    url = url.encode(errors="ignore").decode().strip()
    [normal] = normalise_urls(pa.array([url], pa.large_string())).to_pylist()
    assert (normal is None) == (url.partition("://")[2][:1] in ("", "/", "?", "#"))


def test_a_million_ids_take_seconds(tmp_path: Path) -> None:
    """The texts with an even number are in a list of a million digests and urls, in a shuffled order."""
    texts = [f"text {number}" for number in range(1000)]
    lines = [hashlib.sha256(text.encode()).hexdigest() for text in texts[::2]]
    lines += [hashlib.sha256(b"%d" % number).hexdigest() for number in range(500_000)]
    lines += [f"https://example.org/{number}" for number in range(499_500)]
    path = write(tmp_path / "ids.txt", sorted(lines))
    begun = time.monotonic()
    found = match_identities(texts, [None] * len(texts), path)
    assert found.kinds == ("sha256", None) * 500
    assert (found.ids_read, found.unusable) == (1_000_000, 0)
    assert time.monotonic() - begun < 30
