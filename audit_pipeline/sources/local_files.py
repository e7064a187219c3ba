"""Documents out of a folder or a file of the user's own.

What belongs here: what may be set, which files are read, and which columns make a document. What does not: reading
rows out of one file (audit_pipeline/fetch/).

In a folder each .txt and .md file is one document, each row of a .jsonl, .csv, .parquet file or another of rows is one,
and so is each row of a data set that `datasets` saved in a folder. A single file is read the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from pathlib import Path

from pydantic import field_validator

from audit_pipeline.config.validating import Language, Text
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.fetch.arrow import saved_as
from audit_pipeline.fetch.read import ROW_SUFFIXES, read_rows, suffix_of
from audit_pipeline.fetch.rows import Row, chosen_column, column_names, text_of, text_problem
from audit_pipeline.sources.base import (
    FILE_NAME,
    Collection,
    Document,
    Harvest,
    LeftOut,
    MissingPart,
    Source,
    SourceSection,
)

NAME = "local_files"
WHOLE_FILES = (".txt", ".md")


class LocalFilesSettings(SourceSection):
    """A folder or file of the user's own, and which columns hold what."""

    path: Path | None = None
    text_column: Text | None = None
    title_column: Text | None = None
    date_column: Text | None = None
    group_column: Text | None = None
    collection: Collection = "local"
    licence: Text = "unknown"
    language: Language = "en"
    url: Text | None = None

    @property
    def to_be_set(self) -> str | None:
        """What the user has to set before the files can be read; None where they can be."""
        return f"set {NAME}.path in config/{FILE_NAME} to your folder or file" if self.path is None else None

    @field_validator("path", mode="before")
    @classmethod
    def _not_blank(cls, path: object) -> object:
        if isinstance(path, str) and not path.strip():
            raise ValueError("name a folder or file, or null for none")
        return path


def fetch(settings: LocalFilesSettings, downloads: Path) -> Harvest:
    """The documents that the settings name; nothing is downloaded."""
    return harvest_path(settings)


def harvest_path(settings: LocalFilesSettings) -> Harvest:
    """The documents in the folder or file ``settings.path``; files that cannot be read are missing.

    Hidden files and folders are not looked at, links out of the folder are not followed, and files of other kinds
    are left out. Raises SourceError where no path is set.
    """
    root = settings.path
    if root is None:
        raise SourceError(f"{NAME} has no path: {settings.to_be_set}")
    collection = settings.collection
    if not root.exists():
        return Harvest((), (MissingPart(collection, f"{root}: no such file or folder", collection),))
    documents: list[Document] = []
    missing: list[MissingPart] = []
    left_out: list[LeftOut] = []
    for name, path, problem in sorted(_files(root)):
        if problem is not None:
            left_out.append(LeftOut(name, problem))
            continue
        try:
            found, unusable = _documents(name, path, settings)
        except DataError as error:
            missing.append(MissingPart(name, str(error), collection, name))
        else:
            documents += found
            left_out += unusable
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def _files(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Name below the root, path, and for a file that is not read the reason."""
    if root.is_file() or saved_as(root) is not None:
        yield root.name, root, _kind_problem(root)
        return
    inside = root.resolve()
    for folder, folders, files in os.walk(root, followlinks=False):
        for name in [name for name in folders if (Path(folder) / name).is_symlink() and not name.startswith(".")]:
            yield (Path(folder) / name).relative_to(root).as_posix(), Path(folder) / name, "a linked folder"
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in [path for name in folders if saved_as(path := Path(folder) / name) is not None]:
            folders.remove(path.name)
            if not path.is_symlink():
                yield path.relative_to(root).as_posix(), path, None
        for name in files:
            path = Path(folder) / name
            if name.startswith("."):
                continue
            outside = path.is_symlink() and not path.resolve().is_relative_to(inside)
            yield (
                path.relative_to(root).as_posix(),
                path,
                "a link out of the folder" if outside else _kind_problem(path),
            )


def _kind_problem(path: Path) -> str | None:
    known = path.suffix.lower() in WHOLE_FILES or suffix_of(path) in ROW_SUFFIXES or path.is_dir()
    return None if known else f"not one of {', '.join((*WHOLE_FILES, *ROW_SUFFIXES))}"


def _documents(name: str, path: Path, settings: LocalFilesSettings) -> tuple[list[Document], list[LeftOut]]:
    if path.suffix.lower() in WHOLE_FILES:
        return _whole_document(name, path, settings)
    return _row_documents(name, path, settings)


def _whole_document(name: str, path: Path, settings: LocalFilesSettings) -> tuple[list[Document], list[LeftOut]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    problem = text_problem(text)
    if problem is not None:
        return [], [LeftOut(name, f"its text {problem}")]
    return [_document(settings, name, path, Path(name).stem, text.replace("\r\n", "\n"), None, None)], []


def _row_documents(name: str, path: Path, settings: LocalFilesSettings) -> tuple[list[Document], list[LeftOut]]:
    file = read_rows(path)
    columns = column_names(file.rows)
    text_column = chosen_column(path, columns, settings.text_column)
    for column in (settings.title_column, settings.date_column, settings.group_column):
        if column is not None and column not in columns:
            raise DataError(f"{path}: no column '{column}'; the columns are: {', '.join(columns)}")
    documents: list[Document] = []
    left_out = [LeftOut(f"{name}#{row.index}", f"{row.location}: {row.reason}") for row in file.skipped]
    for row in file.rows:
        row_name = f"{name}#{row.index}"
        try:
            documents.append(_row_document(row_name, path, row, text_column, settings))
        except _UnusableRowError as unusable:
            left_out.append(LeftOut(row_name, f"{row.location}: {unusable}"))
    return documents, left_out


class _UnusableRowError(Exception):
    """Why a row makes no document."""


def _row_document(name: str, path: Path, row: Row, text_column: str, settings: LocalFilesSettings) -> Document:
    text, problem = text_of(row.values, text_column)
    if problem is not None:
        raise _UnusableRowError(problem)
    title = _label(row.values, settings.title_column) or f"{path.stem} {row.index + 1}"
    group = _label(row.values, settings.group_column)
    if settings.group_column is not None and group is None:
        raise _UnusableRowError(f"column '{settings.group_column}' names no group")
    published = None
    if settings.date_column is not None:
        published = _published(row.values.get(settings.date_column), settings.date_column)
    return _document(settings, name, path, title, text, published, group)


def _document(
    settings: LocalFilesSettings,
    name: str,
    path: Path,
    title: str,
    text: str,
    published: date | None,
    group: str | None,
) -> Document:
    return Document(
        collection=settings.collection,
        name=name,
        title=title,
        text=text,
        published=published,
        language=settings.language,
        licence=settings.licence,
        url=settings.url or path.resolve().as_uri(),
        group=group,
    )


def _label(values: Mapping[str, object], column: str | None) -> str | None:
    """A title or group: a string or a whole number; None where the row has none."""
    value = values.get(column) if column is not None else None
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    problem = text_problem(value)
    if problem is not None or not isinstance(value, str):
        raise _UnusableRowError(f"column '{column}' {problem}")
    return value


def _published(value: object, column: str) -> date | None:
    """A date, or the day of a datetime as written; None where the row has none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip()).date()
        except ValueError:
            pass
    raise _UnusableRowError(f"column '{column}' is not an ISO date: {value!r}")


SOURCE = Source(
    NAME,
    f"A folder, or a file of texts or of rows, of the user's own (config/{FILE_NAME}).",
    f"as set in config/{FILE_NAME}",
    LocalFilesSettings,
    fetch,
    on_request=True,
)
