"""Reader of EPUB files: their metadata, and their chapters as XHTML.

The uncompressed sizes of files are limited. Nothing is unpacked to disk. Copy-protected books are refused.
"""

from __future__ import annotations

import lzma
import posixpath
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from audit_pipeline.errors import DataError
from audit_pipeline.readers.charsets import find_codec
from audit_pipeline.readers.dates import Dating, parse_edition_dates
from audit_pipeline.readers.file_bytes import describe_invalid_bytes
from audit_pipeline.readers.whole_files.document import MEBIBYTE

_MAX_MEMBER_BYTES = 8 * MEBIBYTE
_MAX_UNPACKED_BYTES = 64 * MEBIBYTE
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
# Books without copy protection scramble their fonts with these algorithms.
_FONT_SCRAMBLING = frozenset(("http://ns.adobe.com/pdf/enc#RC", "http://www.idpf.org/2008/embedding"))
_CHAPTER_TYPES = frozenset(("application/xhtml+xml", "text/html", "application/html+xml", "text/x-oeb1-document"))
_ISSUED = ("dcterms:issued", "dcterms:date")
_STYLE_SHEET_TYPE = "text/css"
_DECLARED = re.compile(rb"""\A\s*<\?xml[^>]{0,200}?\bencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")


class EpubError(DataError):
    """An error for a file that is not a readable EPUB. The message contains the reason."""


@dataclass(frozen=True)
class Chapter:
    """One file of the reading order.

    Attributes:
        path: Its path in the EPUB.
        roles: Properties in the manifest (nav), types in the guide (toc, title-page), and ``non-linear`` if the
            file is outside the linear reading order.
        markup: Its XHTML.
        style_sheets: All style sheets of the book by path.
    """

    path: str
    roles: frozenset[str]
    markup: str
    style_sheets: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def read_style_sheet(self, address: str) -> str | None:
        """Return the style sheet at an address in the chapter, or None if it is missing in the book."""
        try:
            return self.style_sheets.get(_resolve_reference(posixpath.dirname(self.path), address))
        except _MemberError:
            return None


@dataclass(frozen=True)
class Epub:
    """The content of an EPUB.

    Attributes:
        title: The first title in the metadata.
        chapters: Chapters in reading order.
        problems: Parts that could not be read, each with the reason.
        edition: The interval from the earliest to the latest date of publication in the metadata, or None.
    """

    title: str | None
    chapters: tuple[Chapter, ...]
    problems: tuple[tuple[str, str], ...]
    edition: Dating | None = None


def read_epub(file: Path | IO[bytes]) -> Epub:
    """Read the chapters of an EPUB in the order of its spine.

    A chapter that is missing, outside the file, too long or not text is listed in ``problems`` with the reason.

    Raises:
        EpubError: If the file is damaged, not an EPUB, copy-protected or too large, or if no chapter can be read.
        OSError: If the file cannot be opened.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise EpubError(
            f"the file is damaged or not an EPUB, because it is not a readable zip file ({error})"
        ) from error
    with archive:
        return _read_package(_Members(archive))


class _Members:
    """A reader of an archive's members by name, with limits for the size of a member and of all members."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = frozenset(archive.namelist())
        self._remaining = _MAX_UNPACKED_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self, name: str) -> bytes:
        """Return the bytes of a member.

        Raises:
            _MemberError: If the member cannot be read or is too large.
            EpubError: If all members together are too large.
        """
        if name not in self:
            raise _MemberError("the file is missing in the EPUB")
        try:
            with self._archive.open(name) as member:
                content = member.read(min(_MAX_MEMBER_BYTES, self._remaining) + 1)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError) as error:
            # zipfile raises RuntimeError if a file needs a password. If the compression is not supported, it raises
            # NotImplementedError, which is a subclass of RuntimeError.
            raise _MemberError(f"the file is damaged or locked ({error})") from error
        self._remaining -= len(content)
        if self._remaining < 0:
            raise EpubError(f"the uncompressed size of the EPUB exceeds {_MAX_UNPACKED_BYTES:,} bytes")
        if len(content) > _MAX_MEMBER_BYTES:
            raise _MemberError(f"the uncompressed size of the file exceeds {_MAX_MEMBER_BYTES:,} bytes")
        return content


class _MemberError(Exception):
    """An error for a member that cannot be read. The message contains the reason."""


def _read_package(members: _Members) -> Epub:
    if _CONTAINER not in members:
        raise EpubError(f"the file is not an EPUB, because {_CONTAINER} is missing")
    _refuse_protected(members)
    rootfile = next(_find_elements(_read_xml(members, _CONTAINER), "rootfile"), None)
    if rootfile is None:
        raise EpubError(f"{_CONTAINER} names no package file")
    try:
        package_path = _resolve_reference("", rootfile.get("full-path", ""))
    except _MemberError as error:
        raise EpubError(f"{_CONTAINER} has an unusable path of the package file: {error}") from error
    package = _read_xml(members, package_path)
    folder = posixpath.dirname(package_path)
    items: dict[str, Element] = {}
    for item in _find_elements(package, "item"):
        items.setdefault(item.get("id", ""), item)
    guide = _read_guide(package, folder)
    style_sheets = _read_style_sheets(members, items.values(), folder)
    chapters: list[Chapter] = []
    problems: list[tuple[str, str]] = []
    seen: set[str] = set()
    for reference in _find_elements(package, "itemref"):
        item_id = reference.get("idref", "")
        path = item_id or "itemref"
        try:
            if item_id not in items:
                raise _MemberError("the reading order contains this file, but the list of files does not")
            path = items[item_id].get("href", "")
            path = _resolve_reference(folder, path)
            if path in seen:
                raise _MemberError("the file occurs twice in the reading order")
            seen.add(path)
            media_type = items[item_id].get("media-type", "").lower()
            if media_type not in _CHAPTER_TYPES:
                raise _MemberError(f"the type of the file is not text: {media_type or 'missing'}")
            markup = _decode_markup(members.read(path))
        except _MemberError as error:
            problems.append((path, str(error)))
            continue
        roles = {*items[item_id].get("properties", "").split(), *guide.get(path, ())}
        if reference.get("linear", "yes") == "no":
            roles.add("non-linear")
        chapters.append(Chapter(path, frozenset(roles), markup, style_sheets))
    problems += _find_unlisted_documents(items.values(), folder, seen)
    if not chapters:
        message = "no chapter of the EPUB can be read"
        if problems:
            reasons = "; ".join(f"{path}: {problem}" for path, problem in problems[:2])
            message += f" ({reasons})"
        raise EpubError(message)
    return Epub(_find_title(package), tuple(chapters), tuple(problems), _read_edition(package))


def _find_title(package: Element) -> str | None:
    for metadata in _find_elements(package, "metadata"):
        for element in _find_elements(metadata, "title"):
            title = " ".join("".join(element.itertext()).split())
            if title:
                return title
    return None


def _find_unlisted_documents(items: Iterable[Element], folder: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield path and reason for each text file that is not in the reading order, except the table of contents."""
    for item in items:
        is_navigation = "nav" in item.get("properties", "").split()
        if item.get("media-type", "").lower() in _CHAPTER_TYPES and not is_navigation:
            with suppress(_MemberError):
                path = _resolve_reference(folder, item.get("href", ""))
                if path not in seen:
                    yield path, "the file is skipped, because it is not in the reading order"


def _read_edition(package: Element) -> Dating | None:
    """Return the interval from the earliest to the latest date of publication in the metadata, or None.

    A book may contain the date of the work and the date of this edition. Dates of creation, conversion or modification
    are ignored.
    """
    written: list[str] = []
    for metadata in _find_elements(package, "metadata"):
        for element in metadata.iter():
            name = _local_name(element).lower()
            events = [value.lower() for key, value in element.attrib.items() if key.rpartition("}")[2] == "event"]
            is_issued = name == "meta" and element.get("property") in _ISSUED
            if is_issued or (name == "date" and all("publi" in event or event == "issued" for event in events)):
                written.append("".join(element.itertext()))
    return parse_edition_dates(written)


def _read_style_sheets(members: _Members, items: Iterable[Element], folder: str) -> dict[str, str]:
    """Return the style sheets of the book by path. Damaged style sheets are ignored, as e-book readers do."""
    style_sheets = {}
    for item in items:
        if item.get("media-type", "").lower() == _STYLE_SHEET_TYPE:
            with suppress(_MemberError):
                path = _resolve_reference(folder, item.get("href", ""))
                style_sheets[path] = members.read(path).decode("utf-8-sig", "replace")
    return style_sheets


def _refuse_protected(members: _Members) -> None:
    if _ENCRYPTION not in members:
        return
    for entry in _find_elements(_read_xml(members, _ENCRYPTION), "EncryptedData"):
        methods = {method.get("Algorithm") for method in entry if _local_name(method) == "EncryptionMethod"}
        if not methods or not methods <= _FONT_SCRAMBLING:
            raise EpubError(f"the book is copy-protected ({_ENCRYPTION}). Use a copy without protection.")


def _read_xml(members: _Members, name: str) -> Element:
    try:
        # Older package files have a document type declaration, which is allowed. Entity definitions are refused.
        root: Element = fromstring(members.read(name), forbid_dtd=False, forbid_entities=True, forbid_external=True)
    except _MemberError as error:
        raise EpubError(f"{name}: {error}") from error
    except DefusedXmlException as error:
        raise EpubError(f"{name} defines entities or refers to other files, which is not allowed in an EPUB") from error
    except (ParseError, ValueError, LookupError) as error:
        raise EpubError(f"{name} is not valid XML ({error})") from error
    return root


def _read_guide(package: Element, folder: str) -> Mapping[str, set[str]]:
    """Return the types of files in the guide of an EPUB 2, by path."""
    roles: dict[str, set[str]] = defaultdict(set)
    for reference in _find_elements(package, "reference"):
        href = reference.get("href", "")
        # A reference with a fragment describes a position in a file, not the file.
        if "#" not in href:
            with suppress(_MemberError):
                roles[_resolve_reference(folder, href)].add(reference.get("type", "").lower())
    return roles


def _resolve_reference(folder: str, reference: str) -> str:
    """Return the path of the member that a reference in a file of ``folder`` points to.

    Raises:
        _MemberError: If the reference cannot point to a member.
    """
    try:
        parts = urlsplit(reference.strip())
    except ValueError:
        raise _MemberError("the address of the file is invalid") from None
    if parts.scheme or parts.netloc:
        raise _MemberError("the file is outside the EPUB")
    path = unquote(parts.path).replace("\\", "/")
    if not path:
        raise _MemberError("the address of the file has no path")
    return posixpath.normpath(posixpath.join(folder, path))


def _decode_markup(content: bytes) -> str:
    declared = _DECLARED.match(content)
    encoding = "utf-8-sig"
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif declared:
        label = declared[1].decode("ascii")
        codec = find_codec(label, is_inside=True) or label
        if codec != "utf-8":
            encoding = codec
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise _MemberError(
            f"the file contains {describe_invalid_bytes(error, encoding.removesuffix('-sig').upper())}"
        ) from error
    except LookupError as error:
        raise _MemberError(f"the file has the unknown encoding {encoding}") from error


def _find_elements(root: Element, name: str) -> Iterator[Element]:
    return (element for element in root.iter() if _local_name(element) == name)


def _local_name(element: Element) -> str:
    """Return an element's name without its namespace, because older and broken files have wrong namespaces."""
    return str(element.tag).rpartition("}")[2]
