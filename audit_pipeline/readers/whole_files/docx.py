"""Reader of Word files (.docx).

The XML is read here, because mammoth, which converts Word files to HTML, loses text. It drops simple fields, formulas,
ruby, right-to-left runs, embedded chunks and text boxes of newer programs. It also reads hidden text and note marks.
Only mammoth's table of symbol fonts is used.
"""

from __future__ import annotations

import email
import email.policy
import io
import posixpath
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.readers.charsets import decode_page_file
from audit_pipeline.readers.dates import parse_edition_dates
from audit_pipeline.readers.whole_files.document import (
    MEBIBYTE,
    NO_LINES,
    UNSEEN,
    NoTextError,
    WholeDocument,
    describe_unread,
)
from audit_pipeline.readers.whole_files.html import INVISIBLE, collapse_whitespace, extract_prose
from audit_pipeline.readers.whole_files.word_text import (
    EMBEDDED,
    PARAGRAPH_GAP,
    WordStyles,
    WordText,
    count_text,
    get_attribute,
    has_page_colour,
    local_name,
)

# A Word file with a password is a compound file with this signature. It contains the encrypted zip file.
_LOCKED = bytes.fromhex("D0CF11E0A1B11AE1")
_MAX_XML = 64 * MEBIBYTE
_MAX_NESTED_CHUNKS = 3
# defusedxml's refusals are ValueErrors.
_DAMAGE = (zipfile.BadZipFile, zlib.error, ParseError, OSError, KeyError, ValueError, RecursionError)
_PROPERTIES = "docProps/core.xml"
_USUAL_MAIN_PART = "word/document.xml"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_CREATED = "{http://purl.org/dc/terms/}created"
_COMMENTS = "comments are not read"
_PAGE_HEADS = "headers and footers are not read"
_DIAGRAMS = "charts and diagrams are not read"
_OUTSIDE = "parts of the text outside the file are not read"
_UNREAD_PARTS = {
    "comments": _COMMENTS,
    "header": _PAGE_HEADS,
    "footer": _PAGE_HEADS,
    "diagramData": _DIAGRAMS,
    "chart": _DIAGRAMS,
}
_USUAL_PARTS = ("styles", "footnotes", "endnotes", "comments")
_UNREAD_FILES = frozenset(("package", "oleObject", "subDocument"))


def read_docx(path: Path) -> WholeDocument:
    """Read the running text of a Word file. An empty line separates paragraphs. Notes follow the text.

    Raises:
        NoTextError: If a password locks the file.
        DataError: If the file is damaged or too large.
    """
    content = path.read_bytes()
    if content.startswith(_LOCKED):
        raise NoTextError(
            f"{path}: the file is locked with a password, or is a renamed .doc file. Save it as .docx without a "
            "password."
        )
    try:
        text, unread = _read_package(content, nesting=0)
        title, created = _read_properties(content)
    except _TooLargeError as error:
        raise DataError(f"{path}: the XML of the file is larger than {_MAX_XML:,} bytes. Split the file.") from error
    except _DAMAGE as error:
        raise DataError(f"{path}: the file is damaged or not a Word file ({to_one_line(error)})") from error
    unread_parts = describe_unread(unread, {EMBEDDED: "byte", _OUTSIDE: "file"})
    return WholeDocument(text, title, unread_parts, NO_LINES, parse_edition_dates([created]))


class _TooLargeError(Exception):
    """An error for a file whose uncompressed XML exceeds the maximum size."""


class _Part(NamedTuple):
    """The target of a relationship.

    Attributes:
        kind: The last word of the relationship's type.
        path: The path of the member, or None if the target is outside the file.
    """

    kind: str
    path: str | None


@dataclass(frozen=True)
class _Package:
    """The members (files) of a Word file, which is a zip archive."""

    archive: zipfile.ZipFile

    def read_xml(self, name: str) -> Element:
        root: Element = fromstring(self.archive.read(name), forbid_dtd=True)
        return root

    def find_parts(self, name: str) -> Mapping[str, _Part]:
        """Return the members that a member of the archive refers to, by the id of the relationship."""
        folder, base = posixpath.split(name)
        relations = posixpath.join(folder, "_rels", f"{base}.rels")
        parts: dict[str, _Part] = {}
        for relation in self.read_xml(relations) if relations in self.archive.namelist() else ():
            kind = (get_attribute(relation, "Type") or "").rpartition("/")[2]
            target = posixpath.normpath(posixpath.join("/", folder, get_attribute(relation, "Target") or ""))
            is_inside = get_attribute(relation, "TargetMode") != "External" and target[1:] in self.archive.namelist()
            parts[get_attribute(relation, "Id") or ""] = _Part(kind, target[1:] if is_inside else None)
        for kind in _USUAL_PARTS:
            usual_path = posixpath.join(folder, f"{kind}.xml")
            if usual_path in self.archive.namelist() and kind not in {part.kind for part in parts.values()}:
                # Some programs omit the relationship.
                parts[usual_path] = _Part(kind, usual_path)
        return parts


def _find_part_path(parts: Mapping[str, _Part], kind: str) -> str | None:
    """Return the path of the first part of a kind that is inside the file, or None."""
    for part in parts.values():
        if part.kind == kind and part.path:
            return part.path
    return None


def _read_package(content: bytes, nesting: int) -> tuple[str, Counter[str]]:
    """Return the text of a Word file, and the size of the skipped parts by reason.

    ``nesting`` is the number of Word files in which this file is embedded.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist() if _is_markup(member.filename)) > _MAX_XML:
            raise _TooLargeError
        package = _Package(archive)
        main = _find_part_path(package.find_parts(""), "officeDocument") or _USUAL_MAIN_PART
        parts = package.find_parts(main)
        styles = _find_part_path(parts, "styles")
        document = package.read_xml(main)
        unread: Counter[str] = Counter()
        word = WordText(
            WordStyles(package.read_xml(styles) if styles else None),
            partial(_read_chunk, package, parts, unread, nesting),
            has_page_colour(document),
            unread,
        )
        texts = [word.read(document)]
        read_notes: set[tuple[str, str]] = set()
        notes = _find_notes(package, parts)
        # A note may refer to further notes.
        for reference in word.notes:
            if reference in notes and reference not in read_notes:
                read_notes.add(reference)
                texts.append(word.read(notes[reference]))
        for reference in set(word.hidden_notes) & notes.keys() - read_notes:
            unread[UNSEEN] += count_text(notes[reference])
        _count_unread_parts(package, parts, unread)
    return collapse_whitespace(PARAGRAPH_GAP.join(texts).translate(INVISIBLE)), unread


def _is_markup(name: str) -> bool:
    return name.lower().endswith((".xml", ".rels", ".html", ".htm", ".xhtml", ".mht", ".txt"))


def _find_notes(package: _Package, parts: Mapping[str, _Part]) -> dict[tuple[str, str], Element]:
    """Return footnotes and endnotes by kind and id, without the separator lines above notes."""
    notes = {}
    for part in parts.values():
        if part.kind in ("footnotes", "endnotes") and part.path is not None:
            for note in package.read_xml(part.path):
                if get_attribute(note, "type") in (None, "normal"):
                    notes[local_name(note), get_attribute(note, "id") or ""] = note
    return notes


def _count_unread_parts(package: _Package, parts: Mapping[str, _Part], unread: Counter[str]) -> None:
    for part in parts.values():
        if part.kind in _UNREAD_FILES:
            if part.path is None:
                unread[_OUTSIDE] += 1
            else:
                unread[EMBEDDED] += package.archive.getinfo(part.path).file_size
        elif part.kind in _UNREAD_PARTS and part.path is not None:
            unread[_UNREAD_PARTS[part.kind]] += count_text(package.read_xml(part.path))


def _read_chunk(
    package: _Package, parts: Mapping[str, _Part], unread: Counter[str], nesting: int, relation: str
) -> str:
    """Return the text of an embedded file (a chunk), which Word shows as part of the document.

    HTML, MHTML, plain text and Word files are read. The bytes of damaged and other chunks are counted in ``unread``.
    """
    path = parts[relation].path if relation in parts else None
    if path is None:
        unread[_OUTSIDE] += 1
        return ""
    content = package.archive.read(path)
    suffix = posixpath.splitext(path)[1].lower()
    if suffix in (".mht", ".mhtml"):
        page = email.message_from_bytes(content, policy=email.policy.default).get_body(("html",))
        payload = None if page is None else page.get_payload(decode=True)
        if isinstance(payload, bytes):
            content = payload
            suffix = ".html"
    if suffix in (".html", ".htm", ".xhtml"):
        prose = extract_prose(decode_page_file(content))
        unread.update(prose.unread)
        return prose.text
    if suffix == ".txt":
        return decode_page_file(content)
    if suffix in (".docx", ".docm", ".dotx") and nesting < _MAX_NESTED_CHUNKS:
        with suppress(*_DAMAGE):
            text, inner_unread = _read_package(content, nesting + 1)
            unread.update(inner_unread)
            return text
    unread[EMBEDDED] += len(content)
    return ""


def _read_properties(content: bytes) -> tuple[str | None, str | None]:
    """Return the title and the date of creation in the file's properties. Missing or damaged values are None."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if _PROPERTIES not in archive.namelist():
            return None, None
        try:
            properties = fromstring(archive.read(_PROPERTIES), forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError, LookupError):
            return None, None
        return properties.findtext(_TITLE), properties.findtext(_CREATED)
