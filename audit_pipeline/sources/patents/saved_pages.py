"""Saved pages of patents, out of folders of .html and .html.gz files and out of WARC files.

Files are untrusted: a page, compressed or not, is read up to a limit, and links out of the folder are not followed.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed
from warcio.recordloader import ArcWarcRecord

from audit_pipeline.readers.file_bytes import MEBIBYTE
from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.folders import walk_files
from audit_pipeline.sources.patents.page import RawPage

SUFFIXES = (".html", ".htm", ".html.gz", ".htm.gz", ".warc", ".warc.gz")
LARGEST_PAGE = 20 * MEBIBYTE

_HTML = ("text/html", "application/xhtml+xml")

SavedPage = RawPage | LeftOut | MissingPart


def read_saved_pages(root: Path, byte_limit: int = LARGEST_PAGE) -> Iterator[SavedPage]:
    """Yield every page in the file or folder ``root``, and every file or record that holds none, with the reason.

    A page has at most ``byte_limit`` bytes, unpacked. Missing, without a collection, are files that cannot be read to
    their end: the caller knows whose documents they may hold.
    """
    if not root.exists():
        yield MissingPart(root.name, f"{root}: no such file or folder")
        return
    for name, path, refusal in [(root.name, root, None)] if root.is_file() else walk_files(root):
        if refusal is not None or not path.name.lower().endswith(SUFFIXES):
            yield LeftOut(name, refusal or f"not one of {', '.join(SUFFIXES)}")
            continue
        try:
            if path.name.lower().endswith((".warc", ".warc.gz")):
                yield from _read_warc_pages(name, path, byte_limit)
            else:
                with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
                    yield _build_page(name, file.read(byte_limit + 1), byte_limit)
        except (EOFError, zlib.error, gzip.BadGzipFile, ArchiveLoadFailed) as error:
            yield MissingPart(name, f"{path}: damaged, or cut short ({error})")
        except OSError as error:
            yield MissingPart(name, f"{path}: cannot be read ({error.strerror or error})")


def _build_page(
    name: str, content: bytes, byte_limit: int, url: str | None = None, charset: str | None = None
) -> RawPage | LeftOut:
    if len(content) > byte_limit:
        return LeftOut(name, f"larger than {byte_limit} bytes")
    return RawPage(name, content, url, charset)


def _read_warc_pages(name: str, path: Path, byte_limit: int) -> Iterator[SavedPage]:
    """Yield the pages among the records; other records are counted by what they are."""
    others: Counter[str] = Counter()
    with path.open("rb") as file:
        for record in ArchiveIterator(file):
            kind = _find_non_page_kind(record)
            if kind is not None:
                others[kind] += 1
                continue
            url = record.rec_headers.get_header("WARC-Target-URI") or ""
            content = record.content_stream().read(byte_limit + 1)
            if getattr(record.raw_stream, "limit", 0) > 0 and len(content) <= byte_limit:
                yield MissingPart(url, f"{path}: cut short")
            else:
                yield _build_page(url or name, content, byte_limit, url, _find_charset(record))
    yield from (LeftOut(name, f"{kind}: {count}") for kind, count in sorted(others.items()))


def _find_non_page_kind(record: ArcWarcRecord) -> str | None:
    """Return what a record is that holds no page; None for a page."""
    if record.rec_type not in ("response", "resource"):
        return "records that are no responses"
    headers = record.http_headers
    if headers is not None and headers.get_statuscode() != "200":
        return "responses with a status other than 200"
    declared = record.content_type if headers is None else headers.get_header("Content-Type")
    return None if (declared or _HTML[0]).partition(";")[0].strip().lower() in _HTML else "responses that are not HTML"


def _find_charset(record: ArcWarcRecord) -> str | None:
    declared = record.http_headers.get_header("Content-Type") if record.http_headers is not None else None
    return (declared or "").lower().partition("charset=")[2].partition(";")[0].strip(" \"'") or None
