"""Folders of pages and WARC files: what is read, and what is named and skipped."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from made_patents import page
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from audit_pipeline.connectors.patents import raw_pages as patent_archives
from audit_pipeline.connectors.patents.page import RawPage
from audit_pipeline.connectors.patents.raw_pages import read_saved_pages
from audit_pipeline.sources.base import LeftOut, MissingPart

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
    assert left_out.keys() == {
        "cut.html.gz",
        "fake.html.gz",
        "bomb.html.gz",
        "large.html",
        "note.txt",
        "away.html",
        "away",
    }
    assert "broken gzip" in left_out["cut.html.gz"]
    assert "broken gzip" in left_out["fake.html.gz"]
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
        (URL.format(n), URL.format(n), "UTF-8") for n in NUMBERS
    ]
    assert [raw.content for raw in pages] == [page(number).encode() for number in NUMBERS]
    assert left_out == {path.name: "responses that are not HTML: 1"}
    assert missing == {}


def test_a_record_cut_short_at_the_end_or_in_the_middle_costs_no_other(tmp_path: Path) -> None:
    first, second, third = records(*NUMBERS)
    (tmp_path / "end.warc.gz").write_bytes(first + second + third[:-40])
    (tmp_path / "middle.warc.gz").write_bytes(first + second[: len(second) // 2] + third)
    (tmp_path / "damaged.warc.gz").write_bytes(first + second[:60] + bytes(80) + second[140:] + third)
    (tmp_path / "garbage.warc.gz").write_bytes(first + b"garbage" + third)
    pages, _, missing = found(tmp_path)
    numbers = [str(raw.url).split("/")[4] for raw in pages]
    assert numbers == ["CN1000001A", "CN1000003A"] + ["CN1000001A", "CN1000002A"] + ["CN1000001A", "CN1000003A"] * 2
    assert missing.keys() == {
        f"damaged.warc.gz@{len(first)}",
        f"end.warc.gz@{len(first + second)}",
        f"garbage.warc.gz@{len(first)}",
        f"middle.warc.gz@{len(first)}",
    }
    assert missing[f"end.warc.gz@{len(first + second)}"] == "broken record: cut short"


def test_a_plain_warc_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "pages.warc"
    first, second = records(*NUMBERS[:2], compress=False)
    path.write_bytes(first + second[:-300])
    pages, _, missing = found(path)
    assert [raw.url for raw in pages] == [URL.format("CN1000001A")]
    assert missing == {URL.format("CN1000002A"): "broken record: cut short, in pages.warc"}


def test_what_is_no_warc(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(b"no records here\n" * 10)
    (tmp_path / "b.warc.gz").write_bytes(gzip.compress(b"no records here\n" * 10))
    (tmp_path / "c.warc.gz").write_bytes(b"")
    pages, left_out, missing = found(tmp_path)
    assert pages == []
    assert missing.keys() == {"a.warc", "b.warc.gz@0"}
    assert left_out == {"c.warc.gz": "an empty file"}


def test_whole_warc_in_one_gzip_member(tmp_path: Path) -> None:
    path = tmp_path / "pages.warc.gz"
    path.write_bytes(gzip.compress(b"".join(records(*NUMBERS, compress=False))))
    assert [raw.url for raw in found(path)[0]] == [URL.format(number) for number in NUMBERS]


def test_large_pages_and_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patent_archives, "_LARGEST_MEMBER", 3_000_000)
    first, third = records("CN1000001A", "CN1000003A")
    large = records("CN1000002A", body=bytes(1_500_000))[0]
    bomb = records("CN1000004A", body=bytes(5_000_000))[0]
    path = tmp_path / "pages.warc.gz"
    path.write_bytes(first + large + bomb + third)
    pages, left_out, missing = found(path)
    assert [raw.url for raw in pages] == [URL.format("CN1000001A"), URL.format("CN1000003A")]
    assert left_out == {URL.format("CN1000002A"): "larger than 1000000 bytes"}
    assert "unpacks to more than 3000000 bytes" in missing[f"pages.warc.gz@{len(first + large)}"]


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


@pytest.mark.parametrize(
    "lost", [b"Content-Length: ", b"WARC-Target-URI: ", b"WARC-Type: ", b"WARC-Date: ", b"HTTP/1.1 200 OK"]
)
def test_records_that_lack_a_header_cost_no_other(tmp_path: Path, lost: bytes) -> None:
    first, second, third = records(*NUMBERS, compress=False)
    path = tmp_path / "pages.warc.gz"
    path.write_bytes(b"".join(map(gzip.compress, (first, second.replace(lost, b"X-Lost: ", 1), third))))
    pages, _, _ = found(path)
    urls = [raw.url for raw in pages]
    assert (urls[0], urls[-1]) == (URL.format(NUMBERS[0]), URL.format(NUMBERS[2]))
