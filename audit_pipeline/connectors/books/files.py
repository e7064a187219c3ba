"""Books in a folder: .txt and .epub files, described by a books.csv or books.jsonl beside them.

What belongs here: which files are read, how a file and its entry become a document, and what is said of those that do
not. What does not: the metadata's columns (metadata.py), the inside of an EPUB (epub.py), what is matter and what
is the book (matter.py).

A folder may hold folders; each may have its own metadata file, whose entries name files from there on down.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from audit_pipeline.connectors.books.metadata import METADATA_FILES, BookEntry, read_metadata
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.opened import MEBIBYTE
from audit_pipeline.fetch.rows import unicode_problem
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart
from audit_pipeline.sources.folders import walk_files
from audit_pipeline.whole_files.epub import EpubError, read_epub
from audit_pipeline.whole_files.matter import epub_text, plain_text

BOOK_FILES = (".txt", ".epub")
DATE_KIND = "first publication"
ENCODINGS = {"utf-8": "utf-8", "utf8": "utf-8", "latin-1": "latin-1", "latin1": "latin-1", "iso-8859-1": "latin-1"}
MOST_TEXT_BYTES = 64 * MEBIBYTE
_MOST_PROBLEMS = 5


class UnusableBookError(Exception):
    """Why a book's file makes no document."""


def harvest_folder(folder: Path, collection: str, language: str, licence: str) -> Harvest:
    """The books below ``folder`` as documents of ``collection``, named by their paths.

    ``language`` and ``licence`` hold where an entry has none. A file without an entry is left out, since nothing says
    when it was published; an entry without a file is missing. Hidden files and links out of the folder are not read.
    """
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "no such folder"
        return Harvest((), (MissingPart(collection, f"{folder}: {problem}", collection),))
    documents: list[Document] = []
    missing: list[MissingPart] = []
    left_out: list[LeftOut] = []
    found = list(walk_files(folder))
    files = {name: path for name, path, problem in found if problem is None}
    left_out += [LeftOut(name, problem) for name, _, problem in found if problem is not None]
    entries = _entries(folder, files, collection, missing, left_out)
    for name, entry in sorted(entries.items()):
        if name not in files:
            missing.append(
                MissingPart(name, f"{entry.location} describes it, but there is no such file", collection, name)
            )
            continue
        if files[name].suffix.lower() not in BOOK_FILES:
            left_out.append(LeftOut(name, f"not one of {', '.join(BOOK_FILES)}"))
            continue
        try:
            title, text, problems = _read(files[name], entry)
        except OSError as error:
            missing.append(MissingPart(name, f"cannot be read ({error.strerror or error})", collection, name))
        except UnusableBookError as unusable:
            left_out.append(LeftOut(name, str(unusable)))
        else:
            left_out += _parts_left_out(name, problems)
            documents.append(
                book_document(
                    collection=collection,
                    name=name,
                    entry=entry,
                    title=entry.title or title or PurePosixPath(name).stem,
                    author=entry.author,
                    text=text,
                    language=entry.language or language,
                    licence=entry.licence or licence,
                    url=entry.url or files[name].resolve().as_uri(),
                )
            )
    for name in sorted(set(files) - set(entries)):
        path = files[name]
        if path.suffix.lower() not in BOOK_FILES:
            if path.name not in METADATA_FILES:
                left_out.append(LeftOut(name, f"not one of {', '.join(BOOK_FILES)}"))
        else:
            left_out.append(LeftOut(name, f"no entry in {' or '.join(METADATA_FILES)} says when it was published"))
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def book_document(
    *,
    collection: str,
    name: str,
    entry: BookEntry,
    title: str,
    author: str | None,
    text: str,
    language: str,
    licence: str,
    url: str,
) -> Document:
    """A book as a document; dates and group are the entry's, and without a group it is one of its own."""
    return Document(
        collection=collection,
        name=name,
        title=f"{title}, by {author}" if author else title,
        text=text,
        published=entry.dating.published,
        language=language,
        licence=licence,
        url=url,
        group=f"books:{entry.group}" if entry.group else None,
        date_kind=DATE_KIND,
        earliest=entry.dating.earliest,
    )


def checked_text(text: str) -> str:
    """``text``; raises UnusableBookError where nothing is left of a book, or where it is not valid Unicode."""
    if not text.strip():
        raise UnusableBookError("no text is left once front and back matter are gone")
    problem = unicode_problem(text)
    if problem is not None:
        raise UnusableBookError(problem)
    return text


def decoded(content: bytes, encoding: str = "utf-8") -> str:
    """The text of a book's .txt; a byte-order mark goes, lines end in \\n.

    ``encoding`` is utf-8 or latin-1; raises UnusableBookError, naming the byte, for a file that is in another one.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnusableBookError("in UTF-16; save it as UTF-8")
    try:
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        raise UnusableBookError(
            f"invalid UTF-8 at byte {error.start}; save it as UTF-8, or say latin-1 in the column 'encoding'"
        ) from error
    return cleaned(text)


def cleaned(text: str) -> str:
    """``text`` with lines that end in \\n; raises UnusableBookError where a zero byte shows that it is none."""
    if "\x00" in text:
        raise UnusableBookError(f"a zero byte at character {text.index(chr(0))}: not a text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _entries(
    folder: Path, files: Mapping[str, Path], collection: str, missing: list[MissingPart], left_out: list[LeftOut]
) -> dict[str, BookEntry]:
    """What the metadata files say, by the name of the file that it is about."""
    entries: dict[str, BookEntry] = {}
    for name in sorted(files):
        if PurePosixPath(name).name not in METADATA_FILES:
            continue
        try:
            found, unusable = read_metadata(files[name], "file")
        except DataError as error:
            missing.append(MissingPart(name, str(error), collection))
            continue
        left_out += unusable
        for entry in found:
            try:
                about = _below(PurePosixPath(name).parent, entry)
            except UnusableBookError as problem:
                left_out.append(LeftOut(f"{entry.location} ({entry.key})", str(problem)))
                continue
            if about in entries:
                left_out.append(
                    LeftOut(f"{entry.location} ({entry.key})", f"described before, at {entries[about].location}")
                )
            else:
                entries[about] = entry
    return entries


def _below(folder: PurePosixPath, entry: BookEntry) -> str:
    path = PurePosixPath(entry.key.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UnusableBookError("'file' does not name a file in the folder of the metadata file or below it")
    if entry.encoding is not None and entry.encoding.lower() not in ENCODINGS:
        raise UnusableBookError(f"'encoding' must be utf-8 or latin-1, not {entry.encoding!r}")
    return (folder / path).as_posix()


def _read(path: Path, entry: BookEntry) -> tuple[str | None, str, tuple[tuple[str, str], ...]]:
    """Title, running text, and chapters that could not be read."""
    if path.suffix.lower() == ".epub":
        try:
            book = read_epub(path)
        except EpubError as error:
            raise UnusableBookError(str(error)) from error
        return book.title, checked_text(epub_text(book)), book.problems
    if path.stat().st_size > MOST_TEXT_BYTES:
        raise UnusableBookError(f"more than {MOST_TEXT_BYTES} bytes")
    text = decoded(path.read_bytes(), ENCODINGS[(entry.encoding or "utf-8").lower()])
    return None, checked_text(plain_text(text)), ()


def _parts_left_out(name: str, problems: tuple[tuple[str, str], ...]) -> list[LeftOut]:
    parts = [LeftOut(f"{name}!{part}", reason) for part, reason in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        parts.append(LeftOut(name, f"{len(problems) - _MOST_PROBLEMS} more of its chapters cannot be read"))
    return parts
