"""Source of documents in a user's folder or file.

In a folder each text, web page, book, PDF and Word file is one document. Each row of a file of rows (.jsonl, .csv,
.parquet, …) is one document. So is each row of a data set that `datasets` saved. A single file is read the same way.

The sources of books and patents list their folders with :func:`walk_files`, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from audit_pipeline.config.validation import Text
from audit_pipeline.errors import DataError, SourceError, escape_unprintable
from audit_pipeline.readers import text_rows
from audit_pipeline.readers.dates import DATE_ADVICE, Dating, UnreadableDateError, parse_dating
from audit_pipeline.readers.file_bytes import BROKEN_LINK, VANISHED, find_irregular_kind, is_unicode
from audit_pipeline.readers.formats import ROW_SUFFIXES, find_suffix, read_rows
from audit_pipeline.readers.row_formats.arrow import detect_saved_kind
from audit_pipeline.readers.whole_files.document import (
    WHOLE_FILES,
    NoTextError,
    WholeDocument,
    is_single_document,
    read_document,
)
from audit_pipeline.sources import base
from audit_pipeline.splits.text_traits import detect_languages
from audit_pipeline.store.paths import is_workspace

NAME = "local_files"
DETECT = "detect"
EDITION_DATE = "this edition, as the file gives it"
_MAX_QUOTED_DATES = 3
_KINDLE = (".mobi", ".azw", ".azw3")


class LocalFilesSettings(base.SourceSection):
    """The settings of the source: the paths of the user's files, and the columns of title, text, date and group."""

    path: Path | None = Field(
        default=None, description=f"your folder or file; a relative path starts at the folder of {base.FILE_NAME}"
    )
    collections: Mapping[base.Collection, Annotated[tuple[Path, ...], Field(min_length=1)]] = Field(
        default={},
        description="folders and files of several collections, by name of the collection; replaces 'path' and "
        "'collection'",
    )
    text_column: Text | None = Field(
        default=None, description="column with the text; None: the column 'text', else 'input', else the only column"
    )
    title_column: Text | None = Field(
        default=None, description="column with the title of a row; None: the column 'id', else file name and row number"
    )
    date_column: Text | None = Field(
        default=None,
        description="column with the date of first publication, such as 2024-05-31, 2024-05 or 2024; None: the rows "
        "have no date",
    )
    edition_dates: bool = Field(
        default=False,
        description="true: date EPUB, PDF and Word files by the edition in their metadata, which may be newer than "
        "the work; false: these files have no date",
    )
    group_column: Text | None = Field(
        default=None,
        description="column with the name of the book, patent or article that a row is from; None: each row is its "
        "own group",
    )
    collection: base.Collection = Field(
        default="local", description="name of the collection of all texts, if 'path' is set"
    )
    licence: Text = Field(default="unknown", description="licence of the texts")
    language: Annotated[str, StringConstraints(pattern=r"^([a-z]{2,3}|detect)$")] = Field(
        default="en", description="language of the texts (ISO 639-1), or 'detect' to guess the language of each text"
    )
    url: Text | None = Field(
        default=None, description="web address that the texts come from; None: the address of each file on this machine"
    )

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction to set a path, or None if a path is set."""
        if self.roots_by_collection:
            return None
        return f"set {NAME}.path in config/{base.FILE_NAME} to your folder or file"

    @property
    def roots_by_collection(self) -> Mapping[str, tuple[Path, ...]]:
        """Return the folders and files of each collection."""
        if self.collections or self.path is None:
            return self.collections
        return {self.collection: (self.path,)}

    @field_validator("path", mode="before")
    @classmethod
    def _require_not_blank(cls, path: object) -> object:
        if isinstance(path, str) and not path.strip():
            raise ValueError("must be the path of a folder or file, or null")
        return path

    @model_validator(mode="after")
    def _refuse_path_and_collections(self) -> Self:
        if self.path is not None and self.collections:
            raise ValueError("'path' and 'collections' exclude each other. Remove one of them.")
        return self


def fetch(settings: LocalFilesSettings, downloads: Path) -> base.FetchedDocuments:
    """Return the documents in the user's files. Nothing is downloaded."""
    return fetch_local_files(settings)


def fetch_local_files(settings: LocalFilesSettings) -> base.FetchedDocuments:
    """Return the documents in the user's files. Unreadable files are missing parts.

    Hidden files, hidden folders and workspaces are ignored. Links out of a folder are not followed. Files of other
    formats and files without text are skipped. The name of a document is the path of its file relative to the folder.
    If a collection has several folders, the path is relative to their common parent.

    Raises:
        SourceError: If no path is set.
    """
    if not settings.roots_by_collection:
        raise SourceError(f"the source {NAME} has no path: {settings.missing_setting}")
    items: list[base.FetchedItem] = []
    for collection, roots in settings.roots_by_collection.items():
        for root, prefix in _iterate_name_prefixes(roots):
            items += _fetch_root(collection, root, prefix, settings)
    return base.collect(items)


def _iterate_name_prefixes(roots: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield each folder or file of a collection, and its path below their common parent as prefix of document names."""
    if len(roots) == 1:
        yield roots[0], ""
        return
    absolute_roots = [root.absolute() for root in roots]
    common = Path(os.path.commonpath([root.parent for root in absolute_roots]))
    for root, absolute_root in zip(roots, absolute_roots, strict=True):
        folder = absolute_root if root.is_dir() else absolute_root.parent
        prefix = ""
        if folder != common:
            prefix = escape_unprintable(f"{folder.relative_to(common).as_posix()}/")
        yield root, prefix


def _fetch_root(collection: str, root: Path, prefix: str, settings: LocalFilesSettings) -> Iterator[base.FetchedItem]:
    if not root.exists():
        # The path may have contained any document of the collection. So MissingPart.name stays None, which keeps all
        # earlier documents of the collection.
        fault = (
            f"this path is {find_irregular_kind(root)}" if os.path.lexists(root) else "there is no such file or folder"
        )
        yield base.MissingPart(prefix or collection, f"{root}: {fault}", collection)
        return
    for inner, path, refusal in _iterate_files(root):
        name = f"{prefix}{inner}"
        problem = refusal or _explain_unsupported_format(path)
        if problem is not None:
            yield base.LeftOut(name, problem)
            continue
        read = _read_whole_document if is_single_document(path) else _read_row_documents
        try:
            yield from read(name, path, collection, settings)
        except NoTextError as error:
            yield base.LeftOut(name, str(error))
        except DataError as error:
            yield base.MissingPart(name, str(error), collection, name)


def _iterate_files(root: Path) -> list[tuple[str, Path, str | None]]:
    """Return name below the root, path, and reason for not reading (or None) of each file, in the order of names."""
    if not root.is_dir() or detect_saved_kind(root) is not None:
        refusal = None if root.is_dir() else find_irregular_kind(root)
        return [(escape_unprintable(root.name), root, refusal)]
    return sorted(
        walk_files(
            root,
            is_leaf_folder=lambda folder: detect_saved_kind(folder) is not None,
            find_refusal=lambda folder: "the folder is a workspace of Corpus Audit" if is_workspace(folder) else None,
        )
    )


def _explain_unsupported_format(path: Path) -> str | None:
    if path.suffix.lower() in _KINDLE:
        return "Kindle books cannot be read. Convert them to EPUB."
    if is_single_document(path) or find_suffix(path) in ROW_SUFFIXES or path.is_dir():
        return None
    return f"the file format is not one of {', '.join((*WHOLE_FILES, *ROW_SUFFIXES))}"


def _read_whole_document(
    name: str, path: Path, collection: str, settings: LocalFilesSettings
) -> Iterator[base.FetchedItem]:
    try:
        status = path.stat()
    except OSError:
        # read_document names the cause, such as a broken link.
        whole = read_document(path)
    else:
        whole = _read_file_version(path, status.st_size, status.st_mtime_ns, status.st_ino)
    problem = text_rows.explain_unusable_text(whole.text)
    if problem is not None:
        yield base.LeftOut(name, f"the text {problem}")
        return
    dating = whole.edition if settings.edition_dates else None
    document = _build_document(settings, collection, name, path, whole.title or Path(name).stem, whole.text, dating)
    if dating is not None:
        document = replace(document, date_kind=EDITION_DATE)
    yield replace(document, places=whole.places, edition=whole.edition)
    yield from (base.LeftOut(f"{name}!{part}", reason) for part, reason in whole.problems)


@lru_cache(maxsize=256)
def _read_file_version(path: Path, size: int, modified_ns: int, inode: int) -> WholeDocument:
    """Read a file that is one document. A version of the file, which the arguments identify, is parsed once.

    ``corpus-audit check`` reads the files twice: it inspects them, and the source stores them. Parsing a book of 300
    pages takes seconds.
    """
    return read_document(path)


def _read_row_documents(
    name: str, path: Path, collection: str, settings: LocalFilesSettings
) -> Iterator[base.FetchedItem]:
    file = read_rows(path)
    columns = text_rows.list_columns(file.rows)
    text_column = text_rows.choose_column(path, columns, settings.text_column)
    for column in (settings.title_column, settings.date_column, settings.group_column):
        if column is not None and column not in columns:
            raise DataError(f"{path}: there is no column '{column}'; the columns are: {', '.join(columns)}")
    yield from (base.LeftOut(f"{name}!{part}", reason) for part, reason in file.remarks)
    yield from (base.LeftOut(f"{name}#{row.index}", f"{row.location}: {row.reason}") for row in file.skipped)
    unreadable_dates: list[str] = []
    for row in file.rows:
        row_name = f"{name}#{row.index}"
        dating = None
        try:
            if settings.date_column is not None:
                dating = parse_dating(row.values.get(settings.date_column))
        except UnreadableDateError as error:
            unreadable_dates.append(f"{row.location}: {error}")
        try:
            yield _build_row_document(row_name, path, collection, row, text_column, settings, dating)
        except text_rows.UnusableRowError as unusable:
            yield base.LeftOut(row_name, f"{row.location}: {unusable}")
    if unreadable_dates:
        quoted = "; ".join(unreadable_dates[:_MAX_QUOTED_DATES])
        if len(unreadable_dates) > _MAX_QUOTED_DATES:
            quoted += f" and {len(unreadable_dates) - _MAX_QUOTED_DATES:,} more"
        reason = f"these dates cannot be read, so their texts have no date ({quoted}). {DATE_ADVICE}"
        yield base.LeftOut(f"{name}!{len(unreadable_dates):,} of {len(file.rows):,} dates", reason)


def _build_row_document(
    name: str,
    path: Path,
    collection: str,
    row: text_rows.Row,
    text_column: str,
    settings: LocalFilesSettings,
    dating: Dating | None,
) -> base.Document:
    text = text_rows.read_text(row.values, text_column)
    title = text_rows.read_own_id(row.values, "id")
    if settings.title_column:
        title = text_rows.read_name(row.values, settings.title_column)
    group = None
    if settings.group_column is not None:
        group = text_rows.read_name(row.values, settings.group_column)
        if group is None:
            raise text_rows.UnusableRowError(f"the column '{settings.group_column}' is empty, so the row has no group")
    title = title or f"{path.stem} {row.index + 1}"
    return _build_document(settings, collection, name, path, title, text, dating, group)


def _build_document(
    settings: LocalFilesSettings,
    collection: str,
    name: str,
    path: Path,
    title: str,
    text: str,
    dating: Dating | None = None,
    group: str | None = None,
) -> base.Document:
    language = settings.language
    if language == DETECT:
        language = detect_languages([text])[0]
    document = base.Document(
        collection=collection,
        name=name,
        title=escape_unprintable(" ".join(title.split())),
        text=text,
        published=None,
        language=language,
        licence=settings.licence,
        url=settings.url or path.resolve().as_uri(),
        group=group,
    )
    if dating is None:
        return document
    return replace(document, published=dating.published, earliest=dating.earliest)


SOURCE = base.Source(
    NAME,
    f"Your own folder or file of texts or rows, as set in config/{base.FILE_NAME}.",
    f"as set in config/{base.FILE_NAME}",
    LocalFilesSettings,
    fetch,
    version=7,
    on_request=True,
)


def walk_files(
    root: Path,
    is_leaf_folder: Callable[[Path], bool] = lambda folder: False,
    find_refusal: Callable[[Path], str | None] = lambda folder: None,
) -> Iterator[tuple[str, Path, str | None]]:
    """Yield every file below a folder, with the reason if it must not be read.

    Hidden files and hidden folders are ignored. Linked folders, links to places outside the folder, and files that are
    not regular must not be read.

    Args:
        root: The folder.
        is_leaf_folder: Returns True for a folder that is yielded like a file and not entered.
        find_refusal: Returns the reason why a folder is not entered, or None.

    Yields:
        The printable name of a file relative to ``root``, its path, and the reason for not reading it, or None. A
        folder that is not entered is yielded like a file.
    """
    real_root = Path(os.path.realpath(root))
    unreadable: list[OSError] = []
    names: set[str] = set()
    for folder, folders, files in os.walk(root, followlinks=False, onerror=unreadable.append):
        entered = []
        for path in (Path(folder) / name for name in sorted(folders) if not name.startswith(".")):
            refusal = (
                "the folder is a link, and links to folders are not followed"
                if path.is_symlink()
                else find_refusal(path)
            )
            if refusal is not None or is_leaf_folder(path):
                yield _format_relative_name(path, root), path, refusal
            else:
                entered.append(path.name)
        folders[:] = entered
        for path in (Path(folder) / name for name in sorted(files) if not name.startswith(".")):
            name = _format_relative_name(path, root)
            kind = find_irregular_kind(path)
            if kind in (BROKEN_LINK, VANISHED):
                # The target may exist later. So the reader reports the file as missing, not as unusable.
                kind = None
            refusal = kind or _explain_refused_file(path, root, real_root)
            if name in names and refusal is None:
                refusal = (
                    "another file has the same name apart from unprintable characters. Rename one of the two files."
                )
            names.add(name)
            yield name, path, refusal
    for error in unreadable:
        path = Path(os.fsdecode(error.filename))
        yield _format_relative_name(path, root), path, f"the folder cannot be read ({error.strerror})"


def _format_relative_name(path: Path, root: Path) -> str:
    return escape_unprintable(path.relative_to(root).as_posix())


def _explain_refused_file(path: Path, root: Path, real_root: Path) -> str | None:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(real_root):
        return "the file is a link to a place outside the folder"
    if not is_unicode(str(path.relative_to(root))):
        return "the name of the file is not UTF-8. Rename the file."
    return None
