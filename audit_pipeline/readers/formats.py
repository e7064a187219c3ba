"""Opening of users' files: the suffix of the file name decides which reader returns the rows or texts."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from audit_pipeline.errors import DataError, escape_unprintable
from audit_pipeline.readers import row_formats
from audit_pipeline.readers.conversations import (
    CONVERSATION_COLUMNS,
    ConversationStream,
    ScoredPart,
    find_conversation_columns,
)
from audit_pipeline.readers.file_bytes import (
    COMPRESSIONS,
    STANDARD_INPUT,
    InputFile,
    find_irregular_kind,
    open_regular_file,
    read_standard_input,
)
from audit_pipeline.readers.row_formats.arrow import detect_saved_kind, open_saved_dataset
from audit_pipeline.readers.row_stream import RowFormat, RowStream, TextStream
from audit_pipeline.readers.text_rows import (
    TXT_COLUMN,
    USUAL_TEXT_COLUMNS,
    Row,
    RowFile,
    Skipped,
    SkippedRows,
    UnreadableFileError,
    build_unusable_file_error,
    find_column,
)


def _find_formats() -> dict[str, RowFormat]:
    """Return the formats of all modules in row_formats/, by the suffix of file names, including compression."""
    formats: dict[str, RowFormat] = {}
    for module in pkgutil.iter_modules(row_formats.__path__):
        declared: Sequence[RowFormat] = importlib.import_module(f"{row_formats.__name__}.{module.name}").FORMATS
        for row_format in declared:
            for suffix in row_format.suffixes:
                formats[suffix] = row_format
                if row_format.is_compressible:
                    formats |= {f"{suffix}{compression}": row_format for compression in COMPRESSIONS}
    return formats


_FORMATS: Mapping[str, RowFormat] = _find_formats()

SUFFIXES = tuple(_FORMATS)
ROW_SUFFIXES = tuple(suffix for suffix, row_format in _FORMATS.items() if row_format.has_columns)
"""The suffixes of all formats except .txt, whose rows have no columns."""


def find_suffix(path: Path) -> str | None:
    """Return the suffix of a known format, including ``.gz`` or ``.zst``, or None if the format is unknown."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def has_row_format(path: Path) -> bool:
    """Return True if the path is a folder that `datasets` saved, or has the suffix of a known format."""
    if path.is_dir():
        return detect_saved_kind(path) is not None
    return find_suffix(path) is not None


def open_rows(path: Path, *, name: str | None = None, string_lines: str | None = None) -> RowStream:
    """Open the rows of a file.

    ``Row.location`` contains a number from 1: of the line in text files and spreadsheets, of the row in other formats.
    ``Row.index`` begins at 0. It also counts unreadable rows, but no blank lines.

    Args:
        path: A file of a format in SUFFIXES, a folder that `datasets` saved, or ``-`` for standard input.
        name: The name of the file in ``Row.location``. By default the file name.
        string_lines: The column for JSON values that are strings instead of objects, as in files of the benchmark
            MIMIR. By default such values are skipped.

    Raises:
        DataError: If the file is missing, its format is unknown, or its beginning cannot be read.
    """
    if path == STANDARD_INPUT:
        return _FORMATS[".jsonl"].open(read_standard_input())
    if path.is_dir():
        if detect_saved_kind(path) is None:
            raise DataError(f"{path}: this folder is not a data set that save_to_disk wrote. Name a file.")
        return open_saved_dataset(InputFile(path, name or escape_unprintable(path.name), ""))
    suffix = find_suffix(path)
    if suffix is None:
        raise DataError(f"{path}: the format is unknown. Use a file whose name ends in one of {', '.join(SUFFIXES)}.")
    kind = find_irregular_kind(path)
    if kind is not None:
        problem = f"the path is {kind}, not a regular file" if os.path.lexists(path) else "there is no such file"
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
    """Open the texts of a file.

    Args:
        path: As in :func:`open_rows`.
        text_column: The column with the text. None selects ``text``, ``input`` or the only column. In a .txt file each
            line is a text, regardless of this argument.
        extra_columns: Further columns that are read if the file has them.
        name: As in :func:`open_rows`.

    Raises:
        DataError: As :func:`open_rows`.
    """
    rows = open_rows(path, name=name)
    if rows.file.kind and not _FORMATS[rows.file.kind].has_columns:
        text_column = TXT_COLUMN
    return TextStream(rows, text_column, extra_columns)


def open_scored_texts(
    path: Path, text_column: str | None, part: ScoredPart | None, extra_columns: Sequence[str] = ()
) -> TextStream:
    """Open the texts or conversations of a file that is to be scored.

    Args:
        path: As in :func:`open_rows`.
        text_column: As in :func:`open_texts`. If it is given, the file contains texts, and ``part`` must be None.
        part: The scored part of conversations. None: the answers, if the file has no text column but conversations.
        extra_columns: As in :func:`open_texts`.

    Raises:
        DataError: As :func:`open_rows`, or if the file has no conversations although ``part`` is given.
    """
    stream = open_texts(path, text_column, extra_columns)
    if part is None and text_column is not None:
        return stream
    columns = stream.rows.find_columns()
    if part is None and any(find_column(columns, name) for name in USUAL_TEXT_COLUMNS):
        return stream
    conversation_columns = find_conversation_columns(columns)
    if conversation_columns is not None:
        return ConversationStream(stream.rows, conversation_columns, part or "response", extra_columns)
    if part is None:
        return stream
    raise UnreadableFileError(
        path,
        f"the file contains no conversations. They need one of these sets of columns: {CONVERSATION_COLUMNS}. Rename "
        "the columns, or score whole texts.",
    )


def build_text_stream(texts: Sequence[object]) -> TextStream:
    """Return a stream of texts that are in memory.

    Unusable texts are skipped. Messages mention a text by its position, such as ``texts[3]``.
    """
    name = "texts"
    rows = [Row(f"{name}[{index}]", index, {TXT_COLUMN: text}) for index, text in enumerate(texts)]
    stream = RowStream(
        InputFile(Path(name), name, kind=""), lambda columns: iter(rows), columns=(TXT_COLUMN,), count=len(texts)
    )
    return TextStream(stream, TXT_COLUMN)


def read_rows(path: Path, string_lines: str | None = None) -> RowFile:
    """Read all rows of a file into memory.

    Args:
        path: As in :func:`open_rows`.
        string_lines: As in :func:`open_rows`.

    Raises:
        DataError: As :func:`open_rows`, or if the file has no readable row.
    """
    stream = open_rows(path, string_lines=string_lines)
    entries = list(stream.entries())
    rows = tuple(entry for entry in entries if isinstance(entry, Row))
    skipped = tuple(entry for entry in entries if isinstance(entry, Skipped))
    if not rows:
        raise build_unusable_file_error(path, SkippedRows(len(skipped), list(skipped[:1])))
    return RowFile(rows, skipped, stream.remarks)


def compute_file_digest(path: Path) -> str:
    """Compute the sha256 of a file, or of the names and bytes of the files in a folder that `datasets` saved.

    Raises:
        OSError: If a file cannot be read.
    """
    if not path.is_dir():
        with open_regular_file(path) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    lines = [f"{file.name} {compute_file_digest(file)}\n" for file in sorted(path.iterdir()) if file.is_file()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
