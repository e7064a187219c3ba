"""Users' files by their names: which format each is, and its rows and texts.

What belongs here: the table of formats, and the ways to read a file. What does not: any one format (its module).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from audit_pipeline.catalogue.integrity import file_sha256
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.arrow import detect_saved_kind, open_arrow_rows, open_parquet_rows, open_saved_dataset
from audit_pipeline.fetch.delimited_files import open_delimited_rows
from audit_pipeline.fetch.file_bytes import STANDARD_INPUT, UNPACKED_LIMIT, InputFile, read_standard_input
from audit_pipeline.fetch.json_and_text import open_json_document, open_json_lines, open_text_lines
from audit_pipeline.fetch.rows import TXT_COLUMN, Row, RowFile, Skipped, SkippedRows, build_unusable_file_error
from audit_pipeline.fetch.stream import Piece, RowStream, TextStream

Format = Callable[[InputFile, str | None], RowStream]

_PLAIN: Mapping[str, Format] = {
    ".jsonl": open_json_lines,
    ".csv": open_delimited_rows,
    ".parquet": open_parquet_rows,
    ".txt": open_text_lines,
    ".tsv": open_delimited_rows,
    ".json": open_json_document,
    ".arrow": open_arrow_rows,
    ".feather": open_arrow_rows,
}
_PACKED = (".jsonl", ".json", ".csv", ".tsv", ".txt")
_COMPRESSIONS = (".gz", ".zst")

SUFFIXES = (*_PLAIN, *(f"{suffix}{compression}" for compression in _COMPRESSIONS for suffix in _PACKED))
ROW_SUFFIXES = tuple(suffix for suffix in SUFFIXES if not suffix.startswith(".txt"))
"""The formats whose rows have columns."""


def suffix_of(path: Path) -> str | None:
    """The suffix of a name that says its format, ``.gz`` or ``.zst`` included; None where it says none."""
    name = path.name.lower()
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), None)


def has_row_format(path: Path) -> bool:
    """Whether ``path`` is a file, or a folder, of a format that is read here."""
    return detect_saved_kind(path) is not None if path.is_dir() else suffix_of(path) is not None


def open_rows(
    path: Path, *, name: str | None = None, string_lines: str | None = None, unpacked_limit: int | None = UNPACKED_LIMIT
) -> RowStream:
    """The rows of the file at ``path``: of a format in SUFFIXES, a folder that `datasets` saved, or ``-``.

    ``name`` is the file in the rows' locations, which count lines from 1 in text files (where the row begins) and rows
    from 1 in the others; positions count rows from 0, bad ones included, blank lines not. ``string_lines`` is the
    column of a line that is a JSON string and no object (MIMIR has such files); without it such a line is skipped.
    ``unpacked_limit`` is the most bytes that a .gz or .zst may unpack to; None, for those who keep no row: any number.

    Raises DataError where there is no such file, its format cannot be told from its name, or its beginning cannot be
    read.
    """
    if path == STANDARD_INPUT:
        return open_json_lines(read_standard_input(), string_lines)
    if path.is_dir():
        if detect_saved_kind(path) is None:
            raise DataError(f"{path}: is not a file, nor a data set that was saved by save_to_disk; name a file")
        return open_saved_dataset(InputFile(path, name or path.name, ""), None)
    suffix = suffix_of(path)
    if suffix is None:
        raise DataError(f"{path}: cannot tell its format from its name; use one of {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: {'is not a file' if path.exists() else 'no such file'}")
    packed = next((compression for compression in _COMPRESSIONS if suffix.endswith(compression)), "")
    kind = suffix.removesuffix(packed)
    file = InputFile(path, name or path.name, kind, packed=packed, unpacked_limit=unpacked_limit)
    return _PLAIN[kind](file, string_lines)


def open_texts(
    path: Path,
    text_column: str | None = None,
    extra_columns: Sequence[str] = (),
    *,
    name: str | None = None,
    unpacked_limit: int | None = UNPACKED_LIMIT,
) -> TextStream:
    """The texts of a file, one after another; ``extra_columns`` are further columns, taken if the file has them.

    Without ``text_column`` the column is ``text``, else ``input``, else the only column there is. In a .txt file the
    lines are the texts, whatever ``text_column`` says. Raises DataError as :func:`open_rows` does.
    """
    rows = open_rows(path, name=name, unpacked_limit=unpacked_limit)
    return TextStream(rows, TXT_COLUMN if rows.file.kind == ".txt" else text_column, extra_columns)


def stream_from_texts(texts: Sequence[object]) -> TextStream:
    """Texts that a caller holds in memory, in their order; what is no usable text is skipped, as in a file, and named
    ``texts[3]``."""
    name = "texts"

    def rows(columns: Sequence[str] | None) -> Iterator[Row]:
        for index, text in enumerate(texts):
            yield Row(f"{name}[{index}]", index, {TXT_COLUMN: text})

    stream = RowStream(InputFile(Path(name), name, kind=""), rows, columns=(TXT_COLUMN,), count=len(texts))
    return TextStream(stream, TXT_COLUMN)


def read_rows(path: Path, string_lines: str | None = None) -> RowFile:
    """Every row of the file at ``path``, all in memory.

    Raises DataError as :func:`open_rows` does, and where the file holds no readable row at all.
    """
    stream = open_rows(path, string_lines=string_lines)
    rows: list[Row] = []
    left_out = SkippedRows()
    skipped: list[Skipped] = []
    for entry in stream.entries():
        if isinstance(entry, Row):
            rows.append(entry)
        else:
            skipped.append(entry)
            left_out.add(entry)
    if not rows:
        raise build_unusable_file_error(path, left_out)
    return RowFile(tuple(rows), tuple(skipped), stream.note)


def read_pieces(path: Path) -> Iterator[Piece]:
    """Every row of the file at ``path`` side by side, a piece at a time; raises as :func:`read_rows` does."""
    readable, left_out = False, SkippedRows()
    for piece in open_rows(path).pieces():
        readable = readable or len(piece) > 0
        for row in piece.skipped:
            left_out.add(row)
        yield piece
    if not readable:
        raise build_unusable_file_error(path, left_out)


def digest_of(path: Path) -> str:
    """The sha256 of a file's bytes, or of the names and bytes of the files in a folder that `datasets` saved.

    Raises OSError.
    """
    if not path.is_dir():
        return file_sha256(path)
    inside = [f"{file.name} {digest_of(file)}\n" for file in sorted(path.iterdir()) if file.is_file()]
    return hashlib.sha256("".join(inside).encode()).hexdigest()
