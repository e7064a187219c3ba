"""Raw pages of patents: saved ones, out of folders of .html and .html.gz and out of WARC files, and crawled ones.

What belongs here: which files are read, how much of them, and what of a WARC is a page; the list of publication numbers
that are crawled, their addresses, and when to give up. What does not: how a server is asked (the polite client), and
what a page says (page.py).

Files are untrusted: a page, compressed or not, is read up to a limit, and links out of the folder are not followed.
A compressed WARC holds one gzip member a record. Members are unpacked here one by one, so that one that is broken or
cut short costs no other: crawls that were killed leave such files.

Every answer of a crawl is in the client's store before the next number is requested. A crawl that was killed, or that
gave up, goes on where it was when the source is fetched again.
"""

from __future__ import annotations

import gzip
import io
import mmap
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed
from warcio.limitreader import LimitReader
from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeadersParserException

from audit_pipeline.connectors.answer_store import FetchedPage
from audit_pipeline.connectors.patents.page import LARGEST_PAGE, NOT_A_PATENT, RawPage
from audit_pipeline.connectors.patents.record import page_address, parse_publication_number
from audit_pipeline.connectors.polite_client import FetchError, PoliteClient
from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.file_bytes import MEBIBYTE
from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.folders import walk_files

SUFFIXES = (".html", ".htm", ".html.gz", ".htm.gz", ".warc", ".warc.gz")

# A record is a page with headers; a whole file in one gzip member is read as well, up to this.
_LARGEST_MEMBER = 256 * MEBIBYTE
_GZIP = b"\x1f\x8b\x08"
_CHUNK = 64 * 1024
_MOST_FAULTS = 100
_HTML = ("text/html", "application/xhtml+xml")

SavedPage = RawPage | LeftOut | MissingPart


def read_saved_pages(root: Path, byte_limit: int = LARGEST_PAGE) -> Iterator[SavedPage]:
    """Every page in the file or folder ``root``, and every file or record that yields none, with the reason.

    A page has at most ``byte_limit`` bytes, unpacked. Missing, without a collection, are files that cannot be read to
    their end: the caller knows whose documents they may hold.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: no such file or folder")
        return
    for name, path, problem in _iterate_files(root):
        if problem is not None:
            yield LeftOut(name, problem)
            continue
        try:
            if path.name.lower().endswith((".warc", ".warc.gz")):
                yield from _read_warc_pages(name, path, byte_limit)
            else:
                yield _read_page(name, path, byte_limit)
        except OSError as error:
            yield MissingPart(name, f"{path}: cannot be read ({error.strerror or error})")


def _iterate_files(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Name below the root, path, and for a file that is not read the reason; in order of names."""
    if root.is_file():
        yield root.name, root, _kind_problem(root)
        return
    for name, path, problem in walk_files(root):
        yield name, path, problem or _kind_problem(path)


def _kind_problem(path: Path) -> str | None:
    return None if path.name.lower().endswith(SUFFIXES) else f"not one of {', '.join(SUFFIXES)}"


def _format_size_problem(byte_limit: int) -> str:
    return f"larger than {byte_limit} bytes"


def _read_page(name: str, path: Path, byte_limit: int) -> RawPage | LeftOut:
    with path.open("rb") as raw:
        try:
            compressed = path.suffix.lower() == ".gz"
            file = gzip.GzipFile(fileobj=raw) if compressed else raw
            content = file.read(byte_limit + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            return LeftOut(name, f"broken gzip: {error}")
    return RawPage(name, content) if len(content) <= byte_limit else LeftOut(name, _format_size_problem(byte_limit))


def _read_warc_pages(name: str, path: Path, byte_limit: int) -> Iterator[SavedPage]:
    others: Counter[str] = Counter()
    if path.stat().st_size == 0:
        yield LeftOut(name, "an empty file")
        return
    with path.open("rb") as file:
        if file.read(len(_GZIP)) == _GZIP:
            for place, member in _gzip_members(file):
                if isinstance(member, str):
                    yield MissingPart(f"{name}@{place}", f"broken record: {member}")
                else:
                    yield from _read_record_pages(f"{name}@{place}", io.BytesIO(member), byte_limit, others)
        else:
            file.seek(0)
            yield from _read_record_pages(name, file, byte_limit, others)
    for kind, count in sorted(others.items()):
        yield LeftOut(name, f"{kind}: {count}")


def _gzip_members(file: BinaryIO) -> Iterator[tuple[int, bytes | str]]:
    """The place (in bytes) of each gzip member and its content, or what is wrong with it.

    After a member that is broken, cut short or too large the next one is found by its first bytes.
    """
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start, faults = 0, 0
        while start < len(data):
            content, end, fault = _unpack_member(data, start)
            if fault is None:
                yield start, content
                start = end
                continue
            yield start, fault
            faults += 1
            start = data.find(_GZIP, start + 1) if faults < _MOST_FAULTS else -1
            # Chance hits within compressed bytes do not unpack: go on to the first that does.
            while start >= 0 and not _is_member_start(data, start):
                start = data.find(_GZIP, start + 1)
            if start < 0:
                return


def _is_member_start(data: mmap.mmap, start: int) -> bool:
    try:
        return zlib.decompressobj(wbits=31).decompress(data[start : start + _CHUNK], 8).startswith(b"WARC/")
    except zlib.error:
        return False


def _unpack_member(data: mmap.mmap, start: int) -> tuple[bytes, int, str | None]:
    """The content of the member at ``start``, where it ends, and what is wrong with it."""
    unpacker = zlib.decompressobj(wbits=31)
    pieces: list[bytes] = []
    size, place = 0, start
    try:
        while not unpacker.eof and place < len(data):
            chunk = data[place : place + _CHUNK]
            place += len(chunk)
            # One byte above the limit shows that there is more than it allows.
            piece = unpacker.decompress(chunk, _LARGEST_MEMBER + 1 - size)
            size += len(piece)
            pieces.append(piece)
            if size > _LARGEST_MEMBER:
                return b"", place, f"unpacks to more than {_LARGEST_MEMBER} bytes; recompress it record by record"
    except zlib.error as error:
        return b"", place, f"damaged gzip data ({error})"
    if not unpacker.eof:
        return b"", place, "cut short"
    return b"".join(pieces), place - len(unpacker.unused_data), None


def _read_record_pages(name: str, stream: BinaryIO, byte_limit: int, other_counts: Counter[str]) -> Iterator[SavedPage]:
    """The pages among the records of a WARC stream; other records are counted in ``other_counts`` by what they are."""
    try:
        for record in _records(stream):
            kind = _find_non_page_kind(record)
            if kind is not None:
                other_counts[kind] += 1
                continue
            url = str(record.rec_headers.get_header("WARC-Target-URI") or "").strip("<>")
            content = _read_body(record, byte_limit)
            if len(content) > byte_limit:
                yield LeftOut(url or name, _format_size_problem(byte_limit))
            elif _is_cut_short(record):
                yield MissingPart(url or name, f"broken record: cut short, in {name}")
            else:
                yield RawPage(url or name, content, url or None, _charset(record))
    except (ArchiveLoadFailed, StatusAndHeadersParserException, EOFError, zlib.error, ValueError) as error:
        reason = str(error).strip().splitlines()
        yield MissingPart(name, f"broken record: {reason[0] if reason else type(error).__name__}")


def _records(stream: BinaryIO) -> Iterator[ArcWarcRecord]:
    records = iter(ArchiveIterator(stream))
    while True:
        try:
            record = next(records, None)
        except AttributeError as error:
            # warcio takes it for granted that a response states its address.
            raise ArchiveLoadFailed("a response without an address") from error
        if record is None:
            return
        yield record


def _find_non_page_kind(record: ArcWarcRecord) -> str | None:
    """What a record is, where it is no page: another type, another status, another kind of content."""
    if record.rec_type not in ("response", "resource"):
        return "records that are no responses"
    if record.http_headers is not None:
        if record.http_headers.get_statuscode() != "200":
            return "responses with a status other than 200"
        declared = record.http_headers.get_header("Content-Type")
    else:
        declared = record.content_type
    media_type = str(declared or "text/html").partition(";")[0].strip().lower()
    return None if media_type in _HTML else "responses that are not HTML"


def _read_body(record: ArcWarcRecord, byte_limit: int) -> bytes:
    """The record's content, unpacked, up to one byte more than ``byte_limit``."""
    stream = record.content_stream()
    pieces: list[bytes] = []
    remaining = byte_limit + 1
    while remaining > 0:
        piece = stream.read(min(remaining, _CHUNK))
        if not piece:
            break
        pieces.append(piece)
        remaining -= len(piece)
    return b"".join(pieces)


def _is_cut_short(record: ArcWarcRecord) -> bool:
    """Whether the stream ends before the record does, by the length that the record states."""
    stream = record.raw_stream
    while stream.read(_CHUNK):
        pass
    return isinstance(stream, LimitReader) and stream.limit > 0


def _charset(record: ArcWarcRecord) -> str | None:
    declared = record.http_headers.get_header("Content-Type") if record.http_headers is not None else None
    for parameter in str(declared or "").split(";")[1:]:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "charset" and value.strip():
            return value.strip().strip("\"'")
    return None


SITE = "https://patents.google.com"
_LARGEST_LIST = 64 * MEBIBYTE
# So many failures in a row that are not about a single page mean that the site is out of reach, or wants none of this.
_ENOUGH_FAILURES = 3
_ABOUT_ONE_PAGE = frozenset((400, 404, 410))
_FIELD = b"publicationNumber"

CrawledPage = RawPage | LeftOut | MissingPart


@dataclass(frozen=True)
class NumberList:
    """The publication numbers of a list in its order, each once, and lines that are none."""

    numbers: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def read_numbers(path: Path, countries: Sequence[str], limit: int | None = None) -> NumberList:
    """The numbers in the text file at ``path``: one per line, with or without separators; # begins a comment.

    Lines that hold none, numbers of other countries and what is over ``limit`` are left out.
    Raises SourceError where the file cannot be read.
    """
    try:
        if path.stat().st_size > _LARGEST_LIST:
            raise SourceError(f"{path}: larger than {_LARGEST_LIST} bytes; a list of numbers is not")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    numbers: dict[str, None] = {}
    left_out: list[LeftOut] = []
    for place, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        number = parse_publication_number(text)
        if not text:
            continue
        if number is None:
            left_out.append(LeftOut(f"{path.name}:{place}", f"no publication number: {text[:40]!r}"))
        elif number[:2] not in countries:
            left_out.append(LeftOut(f"{path.name}:{place}", f"not of {', '.join(countries)}: {number}"))
        else:
            numbers[number] = None
    taken = tuple(numbers)[:limit]
    if len(taken) < len(numbers):
        left_out.append(LeftOut(path.name, f"numbers over the limit of {limit}: {len(numbers) - len(taken)}"))
    return NumberList(taken, tuple(left_out))


def crawl_pages(numbers: Sequence[str], client: PoliteClient, site: str = SITE) -> Iterator[CrawledPage]:
    """The pages of ``numbers`` at ``site``, and those that cannot be had.

    Missing carries the country as collection and the number as name, so that an earlier harvest's document is kept.
    After three failures in a row that are not about one page alone, only what is in the client's store is given; the
    other numbers are missing.
    """
    failures, last = 0, ""
    for number in numbers:
        if failures >= _ENOUGH_FAILURES:
            yield _build_missing_part(number, f"not fetched after {failures} failures in a row; the last: {last}")
            continue
        try:
            page = client.get(page_address(number, site), limit=LARGEST_PAGE, find_refusal=_explain_not_a_patent)
        except FetchError as error:
            last = str(error)
            failures = failures if error.status in _ABOUT_ONE_PAGE else failures + 1
            yield _build_missing_part(number, last)
        else:
            failures = 0
            yield RawPage(number, page.content, page.url, page.charset)


def _build_missing_part(number: str, reason: str) -> MissingPart:
    return MissingPart(number, reason, number[:2], number)


def _explain_not_a_patent(page: FetchedPage) -> str | None:
    """Why an answer is no patent page: a site that is busy may say so in a page of its own."""
    return None if _FIELD in page.content else f"the answer is {NOT_A_PATENT}"
