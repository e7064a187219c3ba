"""Users' files by their names: which format each is, and its rows and texts."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit_pipeline.errors import DataError, escape_unprintable
from audit_pipeline.readers import row_formats
from audit_pipeline.readers.file_bytes import (
    COMPRESSIONS,
    STANDARD_INPUT,
    InputFile,
    read_standard_input,
)
from audit_pipeline.readers.regular_files import find_irregular_kind, open_regular_file
from audit_pipeline.readers.row_formats.arrow import detect_saved_kind, open_saved_dataset
from audit_pipeline.readers.row_stream import RowFormat, RowStream, TextStream
from audit_pipeline.readers.text_rows import TXT_COLUMN, Row, RowFile, Skipped, SkippedRows, build_unusable_file_error


def _find_formats() -> dict[str, RowFormat]:
    """The format of every module in row_formats/, by each suffix that a name may have."""
    names = [f"{row_formats.__name__}.{module.name}" for module in pkgutil.iter_modules(row_formats.__path__)]
    formats: list[RowFormat] = [importlib.import_module(name).FORMAT for name in names]
    return {
        f"{suffix}{compression}": found
        for found in formats
        for suffix in found.suffixes
        for compression in ("", *(COMPRESSIONS if found.is_compressible else ()))
    }


_FORMATS: Mapping[str, RowFormat] = _find_formats()

SUFFIXES = tuple(_FORMATS)
ROW_SUFFIXES = tuple(suffix for suffix, row_format in _FORMATS.items() if row_format.has_columns)
"""The formats whose rows have columns."""


def find_suffix(path: Path) -> str | None:
    """The suffix of a name that says its format, ``.gz`` or ``.zst`` included; None where it says none."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def has_row_format(path: Path) -> bool:
    """Whether ``path`` is a file, or a folder, of a format that is read here."""
    return detect_saved_kind(path) is not None if path.is_dir() else find_suffix(path) is not None


def open_rows(path: Path, *, name: str | None = None, string_lines: str | None = None) -> RowStream:
    """The rows of the file at ``path``: of a format in SUFFIXES, a folder that `datasets` saved, or ``-``.

    ``name`` is the file in the rows' locations, which count lines from 1 in text files and spreadsheets (where the row
    begins) and rows from 1 in the others; positions count rows from 0, bad ones included, blank lines not.
    ``string_lines`` is the column of a line that is a JSON string and no object (MIMIR has such files); without it such
    a line is skipped.

    Raises DataError where there is no such file, its format is not clear from its name, or its beginning cannot be
    read.
    """
    if path == STANDARD_INPUT:
        return _FORMATS[".jsonl"].open(read_standard_input())
    if path.is_dir():
        if detect_saved_kind(path) is None:
            raise DataError(f"{path}: is not a file, nor a data set that was saved by save_to_disk; name a file")
        return open_saved_dataset(InputFile(path, name or escape_unprintable(path.name), ""))
    suffix = find_suffix(path)
    if suffix is None:
        raise DataError(f"{path}: unknown format; use a name that ends in one of {', '.join(SUFFIXES)}")
    if (kind := find_irregular_kind(path)) is not None:
        problem = f"is {kind}, not a regular file" if os.path.lexists(path) else "no such file"
        raise DataError(f"{path}: {problem}")
    packed = next((compression for compression in COMPRESSIONS if suffix.endswith(compression)), "")
    file = InputFile(path, name or escape_unprintable(path.name), suffix.removesuffix(packed), packed, string_lines)
    return _FORMATS[file.kind].open(file)


def open_texts(
    path: Path,
    text_column: str | None = None,
    extra_columns: Sequence[str] = (),
    *,
    name: str | None = None,
) -> TextStream:
    """The texts of a file, in order; ``extra_columns`` are further columns, taken if the file has them.

    Without ``text_column`` the column is ``text``, else ``input``, else the only column there is. In a .txt file the
    lines are the texts, whatever ``text_column`` says. Raises DataError as :func:`open_rows` does.
    """
    rows = open_rows(path, name=name)
    has_columns = not rows.file.kind or _FORMATS[rows.file.kind].has_columns
    return TextStream(rows, text_column if has_columns else TXT_COLUMN, extra_columns)


def stream_from_texts(texts: Sequence[object]) -> TextStream:
    """Texts that a caller holds in memory, in their order; what is no usable text is skipped, as in a file, and named
    ``texts[3]``."""
    name = "texts"
    rows = [Row(f"{name}[{index}]", index, {TXT_COLUMN: text}) for index, text in enumerate(texts)]
    stream = RowStream(
        InputFile(Path(name), name, kind=""), lambda columns: iter(rows), columns=(TXT_COLUMN,), count=len(texts)
    )
    return TextStream(stream, TXT_COLUMN)


def read_rows(path: Path, string_lines: str | None = None) -> RowFile:
    """Every row of the file at ``path``, all in memory.

    Raises DataError as :func:`open_rows` does, and where the file holds no readable row at all.
    """
    stream = open_rows(path, string_lines=string_lines)
    entries = list(stream.entries())
    rows = tuple(entry for entry in entries if isinstance(entry, Row))
    skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
    if not rows:
        raise build_unusable_file_error(path, SkippedRows(len(skipped), list(skipped[:1])))
    return RowFile(rows, skipped, stream.remarks)


def compute_file_digest(path: Path) -> str:
    """The sha256 of a file's bytes, or of the names and bytes of the files in a folder that `datasets` saved.

    Raises OSError.
    """
    if not path.is_dir():
        with open_regular_file(path) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    inside = [f"{file.name} {compute_file_digest(file)}\n" for file in sorted(path.iterdir()) if file.is_file()]
    return hashlib.sha256("".join(inside).encode()).hexdigest()
