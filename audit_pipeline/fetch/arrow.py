"""Rows of Arrow's formats: .parquet, .arrow and .feather files, and folders that `datasets` saved to disk.

What belongs here: from batches of columns to pieces of rows, one in memory at a time. What does not: the project's own
tables (catalogue/files.py), whose columns are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from audit_pipeline.errors import to_one_line
from audit_pipeline.fetch.file_bytes import InputFile
from audit_pipeline.fetch.rows import Row, Skipped, UnreadableFileError
from audit_pipeline.fetch.stream import ROWS_OF_A_PIECE, Cells, Entries, Piece, RowStream, locations_of, piece_of

_ARROW_FILE = b"ARROW1"
_STATE, _SPLITS = "state.json", "dataset_dict.json"


def detect_saved_kind(folder: Path) -> Literal["rows", "splits"] | None:
    """What `datasets` saved in the folder: the rows of a data set, or several splits of one; None: neither."""
    if (folder / _STATE).is_file():
        return "rows"
    return "splits" if (folder / _SPLITS).is_file() else None


def open_parquet_rows(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of a Parquet file; raises UnreadableFileError where it is none."""
    with _open_parquet(file) as opened:
        columns, count = _require_unique(file, opened.schema_arrow.names), opened.metadata.num_rows

    def read(names: Sequence[str] | None) -> Iterator[Piece]:
        with _open_parquet(file) as opened:
            selected = None if names is None else list(names)
            yield from _split_batches(file, opened.iter_batches(ROWS_OF_A_PIECE, columns=selected))

    return RowStream(file, read, columns, count)


def open_arrow_rows(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of an Arrow (Feather) file or stream; raises UnreadableFileError where it is neither."""
    return _open_arrow_files(file, [file.path])


def open_saved_dataset(file: InputFile, string_lines: str | None) -> RowStream:
    """The rows of a data set that `datasets` saved to disk; raises UnreadableFileError where that cannot be read."""
    splits = file.path / _SPLITS
    if splits.is_file():
        names = _read_listed_names(file, splits, "splits")
        first = names[0] if names else "SPLIT"
        raise UnreadableFileError(
            file.path, f"holds the splits {', '.join(names)}: name the folder of one, as in {file.path / first}"
        )
    # Only in this folder, whatever the names say.
    names = _read_listed_names(file, file.path / _STATE, "_data_files")
    return _open_arrow_files(file, [file.path / Path(name).name for name in names])


def _read_listed_names(file: InputFile, path: Path, key: str) -> list[str]:
    """The names under ``key`` of a file of JSON that `datasets` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFileError(file.path, f"its {path.name} cannot be read ({to_one_line(error)})") from error
    entries = content.get(key) if isinstance(content, dict) else None
    names = [entry.get("filename") if isinstance(entry, dict) else entry for entry in entries or ()]
    if not isinstance(entries, list) or not all(isinstance(name, str) and name for name in names):
        raise UnreadableFileError(file.path, f"its {path.name} does not say what it holds: save the data set again")
    return [str(name) for name in names]


def _open_arrow_files(file: InputFile, paths: Sequence[Path]) -> RowStream:
    with _faults_as_errors(file, "Arrow file"):
        names = list(dict.fromkeys(name for path in paths for name in _read_schema(path).names))
        columns = _require_unique(file, _read_schema(paths[0]).names if len(paths) == 1 else names)
        count = sum(map(_count_rows, paths))

    def read(selected: Sequence[str] | None) -> Iterator[Piece]:
        with _faults_as_errors(file, "Arrow file"):
            found = (batch for path in paths for batch in _iterate_batches(path))
            yield from _split_batches(file, (_require_valid_batch(_select_columns(batch, selected)) for batch in found))

    return RowStream(file, read, columns, count)


def _iterate_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file or stream; the file is mapped, not read into memory."""
    with pa.memory_map(str(path)) as mapped:
        if not _is_file_format(mapped):
            yield from pa.ipc.open_stream(mapped)
            return
        opened = pa.ipc.open_file(mapped)
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


def _read_schema(path: Path) -> pa.Schema:
    with pa.memory_map(str(path)) as mapped:
        schema = (pa.ipc.open_file(mapped) if _is_file_format(mapped) else pa.ipc.open_stream(mapped)).schema
    return schema


def _count_rows(path: Path) -> int:
    with pa.memory_map(str(path)) as mapped:
        if _is_file_format(mapped):
            return int(pa.ipc.open_file(mapped).count_rows())
    return sum(batch.num_rows for batch in _iterate_batches(path))


def _is_file_format(mapped: pa.MemoryMappedFile) -> bool:
    start = mapped.read(len(_ARROW_FILE))
    mapped.seek(0)
    return bool(start == _ARROW_FILE)


def _select_columns(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    return batch if columns is None else batch.select([name for name in columns if name in batch.schema.names])


def _require_valid_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, checked through: Arrow reads what a damaged offset points to, wherever that is.

    Strings that are not UTF-8 pass here; each costs its own row. Raises pa.ArrowInvalid.
    """
    columns = [_to_binary_column(column) for column in batch.columns]
    pa.RecordBatch.from_arrays(columns, names=batch.schema.names).validate(full=True)
    return batch


def _to_binary_column(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.view(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _require_unique(file: InputFile, names: Sequence[str]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise UnreadableFileError(file.path, f"names a column twice: {', '.join(names)}")
    return tuple(names)


def _split_batches(file: InputFile, batches: Iterable[pa.RecordBatch]) -> Iterator[Piece]:
    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_OF_A_PIECE):
            part = batch.slice(start, ROWS_OF_A_PIECE)
            yield _piece_of_batch(file.name, first, part)
            first += part.num_rows


def _piece_of_batch(name: str, first: int, batch: pa.RecordBatch) -> Piece:
    try:
        columns = {field: _cells(column) for field, column in zip(batch.schema.names, batch.columns, strict=True)}
    except (ValueError, OverflowError):
        return piece_of(_convert_rows_singly(name, first, batch))
    indices = pa.array(range(first, first + batch.num_rows), pa.int64())
    return Piece(columns, locations_of(name, pc.add(indices, 1)), indices)


def _cells(column: pa.Array) -> Cells:
    """A column as a piece has it; raises ValueError (pa.ArrowInvalid is one) or OverflowError for a bad cell."""
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        column.validate(full=True)
        return column
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type) or pa.types.is_float64(column.type):
        return column
    return column.cast(pa.float64()) if pa.types.is_float32(column.type) else column.to_pylist()


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _convert_rows_singly(name: str, first: int, piece: pa.RecordBatch) -> Entries:
    """The rows of a piece that does not convert as a whole: Arrow does not check that strings are UTF-8."""
    for offset in range(piece.num_rows):
        location, index = f"{name}:{first + offset + 1}", first + offset
        try:
            yield Row(location, index, piece.slice(offset, 1).to_pylist()[0])
        except UnicodeDecodeError as error:
            yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of a value")
        except (ValueError, OverflowError) as error:
            yield Skipped(location, index, f"a value that cannot be read: {to_one_line(error)}")


@contextmanager
def _open_parquet(file: InputFile) -> Iterator[pq.ParquetFile]:
    with _faults_as_errors(file, "Parquet file"), pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
        yield opened


@contextmanager
def _faults_as_errors(file: InputFile, kind: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFileError(file.path, f"is not a readable {kind} ({_format_error(error)})") from error


def _format_error(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
