"""Folders of pages and WARC files: what is read, and what is named and skipped."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from made_patents import page
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.patents.page import RawPage
from audit_pipeline.sources.patents.saved_pages import read_saved_pages

URL = "https://patents.google.com/patent/{}/zh"


def found(root: Path, largest: int = 1_000_000) -> tuple[list[RawPage], dict[str, str], dict[str, str]]:
    items = list(read_saved_pages(root, largest))
    return (
        [item for item in items if isinstance(item, RawPage)],
        {item.part: item.reason for item in items if isinstance(item, LeftOut)},
        {item.part: item.reason for item in items if isinstance(item, MissingPart)},
    )


def records(
    *numbers: str, compress: bool = True, kind: str = "text/html; charset=UTF-8", body: bytes | None = None
) -> list[bytes]:
    """The bytes of one WARC record a number, as warcio writes them."""
    written = []
    for number in numbers:
        file = io.BytesIO()
        writer = WARCWriter(file, gzip=compress)
        content = page(number).encode() if body is None else body
        headers = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
        writer.write_record(
            writer.create_warc_record(URL.format(number), "response", payload=io.BytesIO(content), http_headers=headers)
        )
        written.append(file.getvalue())
    return written


NUMBERS = ("CN1000001A", "CN1000002A", "CN1000003A")


def test_a_folder(tmp_path: Path) -> None:
    folder, outside = tmp_path / "pages", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.html").write_text("must not be read")
    (folder / "a.html").write_bytes(b"page a")
    (folder / "deep" / "b.HTM").write_bytes(b"page b")
    (folder / "c.html.gz").write_bytes(gzip.compress(b"page c"))
    (folder / "cut.html.gz").write_bytes(gzip.compress(page().encode())[:-20])
    (folder / "fake.html.gz").write_bytes(b"not gzip")
    (folder / "bomb.html.gz").write_bytes(gzip.compress(bytes(2_000_000)))
    (folder / "large.html").write_bytes(bytes(1_000_001))
    (folder / "note.txt").write_text("x")
    (folder / ".hidden.html").write_text("x")
    (folder / "away.html").symlink_to(outside / "x.html")
    (folder / "away").symlink_to(outside)
    (folder / "dangling.html").symlink_to(folder / "nowhere.html")
    pages, left_out, missing = found(folder)
    assert {raw.name: raw.content for raw in pages} == {
        "a.html": b"page a",
        "deep/b.HTM": b"page b",
        "c.html.gz": b"page c",
    }
    assert left_out.keys() == {"bomb.html.gz", "large.html", "note.txt", "away.html", "away"}
    assert missing.keys() == {"cut.html.gz", "fake.html.gz", "dangling.html"}
    assert "damaged, or cut short" in missing["cut.html.gz"]
    assert "damaged, or cut short" in missing["fake.html.gz"]
    assert left_out["bomb.html.gz"] == left_out["large.html"] == "larger than 1000000 bytes"
    assert left_out["away.html"] == "a link out of the folder"
    assert "cannot be read" in missing["dangling.html"]


def test_one_file_and_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"x")
    assert [raw.content for raw in found(tmp_path / "a.html")[0]] == [b"x"]
    assert "no such file or folder" in found(tmp_path / "b.html")[2]["b.html"]


@pytest.mark.parametrize("compress", [True, False])
def test_a_warc(tmp_path: Path, compress: bool) -> None:
    path = tmp_path / ("pages.warc.gz" if compress else "pages.warc")
    image = records("CN1000009A", compress=compress, kind="image/png", body=b"png")
    path.write_bytes(b"".join([*records(*NUMBERS, compress=compress), *image]))
    pages, left_out, missing = found(path)
    assert [(raw.name, raw.url, raw.charset) for raw in pages] == [
        (URL.format(n), URL.format(n), "utf-8") for n in NUMBERS
    ]
    assert [raw.content for raw in pages] == [page(number).encode() for number in NUMBERS]
    assert left_out == {path.name: "responses that are not HTML: 1"}
    assert missing == {}


def test_a_warc_that_breaks_off_gives_the_pages_before_the_break(tmp_path: Path) -> None:
    for compress, name in ((True, "packed.warc.gz"), (False, "plain.warc")):
        first, second = records(*NUMBERS[:2], compress=compress)
        path = tmp_path / name
        path.write_bytes(first + second[:-300])
        pages, left_out, missing = found(path)
        assert [raw.url for raw in pages] == [URL.format(NUMBERS[0])]
        assert left_out == {}
        assert "cut short" in "".join(missing.values())


def test_what_is_no_warc(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(b"no records here\n" * 10)
    (tmp_path / "b.warc.gz").write_bytes(gzip.compress(b"no records here\n" * 10))
    pages, left_out, missing = found(tmp_path)
    assert pages == []
    assert missing.keys() == {"a.warc", "b.warc.gz"}
    assert left_out == {}


def test_a_body_that_is_compressed_and_chunked(tmp_path: Path) -> None:
    body = gzip.compress(page("CN1000001A").encode())
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    file = io.BytesIO()
    writer = WARCWriter(file, gzip=True)
    headers = [("Content-Type", "text/html"), ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")]
    http = StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")
    writer.write_record(writer.create_warcinfo_record("pages.warc.gz", {"software": "made by hand"}))
    writer.write_record(
        writer.create_warc_record(URL.format("x"), "response", payload=io.BytesIO(chunked), http_headers=http)
    )
    gone = StatusAndHeaders("404 Not Found", [("Content-Type", "text/html")], protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record(URL.format("y"), "response", payload=io.BytesIO(b"gone"), http_headers=gone)
    )
    path = tmp_path / "pages.warc.gz"
    path.write_bytes(file.getvalue())
    items = list(read_saved_pages(path))
    assert items == [
        RawPage(URL.format("x"), page("CN1000001A").encode(), URL.format("x")),
        LeftOut("pages.warc.gz", "records that are no responses: 1"),
        LeftOut("pages.warc.gz", "responses with a status other than 200: 1"),
    ]
