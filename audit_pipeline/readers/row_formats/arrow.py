"""Readers of the rows of .arrow, .feather and .parquet files, and of folders that `datasets` saved to disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.file_bytes import InputFile, describe_invalid_bytes, require_regular_file
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, Skipped, UnreadableFileError, require_unique_columns

ROWS_AT_ONCE = 256
_FILE_MAGIC = b"ARROW1"
_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_BINARY_TYPES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def open_arrow_rows(file: InputFile) -> RowStream:
    """Open an Arrow (Feather) file or stream.

    Raises:
        UnreadableFileError: If the file is not a readable Arrow file or stream.
    """
    return _open_arrow_files(file, [file.path])


def open_parquet_rows(file: InputFile) -> RowStream:
    """Open a Parquet file.

    Raises:
        UnreadableFileError: If the file is not a readable Parquet file.
    """
    with _open_parquet(file) as opened:
        columns = require_unique_columns(file.path, opened.schema_arrow.names)
        count = opened.metadata.num_rows

    def read(names: Sequence[str] | None) -> Entries:
        with _open_parquet(file) as opened:
            yield from _iterate_rows(file.name, opened.iter_batches(ROWS_AT_ONCE, columns=names and list(names)))

    return RowStream(file, read, columns, count)


def detect_saved_kind(folder: Path) -> Literal["rows", "splits"] | None:
    """Return "rows" or "splits" if `datasets` saved one split or several splits in a folder, or None for neither."""
    if (folder / _STATE).is_file():
        return "rows"
    if (folder / _SPLITS).is_file():
        return "splits"
    return None


def open_saved_dataset(file: InputFile) -> RowStream:
    """Open a data set that `datasets` saved to disk.

    Raises:
        UnreadableFileError: If the data set cannot be read or has several splits.
    """
    splits = file.path / _SPLITS
    if splits.is_file():
        names = _read_listed_names(file, splits, "splits")
        example = file.path / next(iter(names), "SPLIT")
        raise UnreadableFileError(
            file.path,
            f"the data set has the splits {', '.join(names)}. Name the folder of one split, such as {example}.",
        )
    names = _read_listed_names(file, file.path / _STATE, "_data_files")
    # Only the last part of a name is used, so that no file outside this folder is read.
    return _open_arrow_files(file, [file.path / Path(name).name for name in names])


def _iterate_rows(name: str, batches: Iterable[pa.RecordBatch]) -> Entries:
    """Yield the rows of all batches of a file. Locations are numbered from 1."""
    offset = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            part = batch.slice(start, ROWS_AT_ONCE)
            try:
                columns = [column.to_pylist() for column in part.columns]
            except (ValueError, OverflowError):
                yield from _convert_rows_singly(name, offset, part)
            else:
                # Without columns, zip would return no rows.
                values = zip(*columns, strict=True) if columns else [()] * part.num_rows
                for index, cells in enumerate(values, offset):
                    yield Row(f"{name}:{index + 1}", index, dict(zip(part.schema.names, cells, strict=True)))
            offset += part.num_rows


@contextmanager
def _convert_arrow_errors(file: InputFile, kind: str) -> Iterator[None]:
    """Convert errors of Arrow that the block raises to UnreadableFileError. ``kind`` is the format in the message."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error) or type(error).__name__
        first_line = reason.splitlines()[0]
        raise UnreadableFileError(file.path, f"the file is not a readable {kind} ({first_line})") from error


def _convert_rows_singly(name: str, offset: int, batch: pa.RecordBatch) -> Entries:
    """Yield the rows of a batch with invalid values, such as invalid UTF-8. Only rows with such values are skipped."""
    for number in range(batch.num_rows):
        index = offset + number
        location = f"{name}:{index + 1}"
        try:
            yield Row(location, index, batch.slice(number, 1).to_pylist()[0])
        except UnicodeDecodeError as error:
            yield Skipped(location, index, f"{describe_invalid_bytes(error)} of a value")
        except (ValueError, OverflowError) as error:
            yield Skipped(location, index, f"a value cannot be read: {to_one_line(error)}")


def _read_listed_names(file: InputFile, path: Path, key: str) -> list[str]:
    """Return the list of file or split names under a key of a JSON file that `datasets` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableFileError(
            file.path, f"the file {path.name} of the data set cannot be read ({to_one_line(error)})"
        ) from error
    invalid = UnreadableFileError(
        file.path, f"the file {path.name} of the data set has no valid list {key!r}. Save the data set again."
    )
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        raise invalid
    names: list[str] = []
    for entry in content[key]:
        name = entry
        if isinstance(entry, dict):
            name = entry.get("filename")
        if not isinstance(name, str) or not name:
            raise invalid
        names.append(name)
    return names


def _open_arrow_files(file: InputFile, paths: Sequence[Path]) -> RowStream:
    columns: dict[str, None] = {}
    count = 0
    with _convert_arrow_errors(file, "Arrow file"):
        for path in paths:
            with _open_ipc(path) as reader:
                columns.update(dict.fromkeys(require_unique_columns(file.path, reader.schema.names)))
                if isinstance(reader, pa.RecordBatchStreamReader):
                    count += sum(batch.num_rows for batch in reader)
                else:
                    count += reader.count_rows()

    def read(selected: Sequence[str] | None) -> Entries:
        with _convert_arrow_errors(file, "Arrow file"):
            yield from _iterate_rows(file.name, _iterate_selected_batches(paths, selected))

    return RowStream(file, read, tuple(columns), count)


@contextmanager
def _open_ipc(path: Path) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader]:
    """Open an Arrow file or stream with a memory map."""
    require_regular_file(path)
    with pa.memory_map(str(path)) as mapped:
        is_file = mapped.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        mapped.seek(0)
        yield pa.ipc.open_file(mapped) if is_file else pa.ipc.open_stream(mapped)


def _iterate_batches(path: Path) -> Iterator[pa.RecordBatch]:
    with _open_ipc(path) as reader:
        if isinstance(reader, pa.RecordBatchStreamReader):
            yield from reader
        else:
            yield from map(reader.get_batch, range(reader.num_record_batches))


def _iterate_selected_batches(paths: Iterable[Path], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    for path in paths:
        for batch in _iterate_batches(path):
            yield _select_and_validate(batch, columns)


def _select_and_validate(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """Return a batch with the selected columns (None: all) after a complete validation.

    Without validation Arrow reads memory outside the file if an offset is damaged. Strings are validated as bytes, so
    that invalid UTF-8 makes only its row unusable.

    Raises:
        pa.ArrowInvalid: If the batch is damaged.
    """
    if columns is not None:
        batch = batch.select([name for name in columns if name in batch.schema.names])
    viewed = []
    for column in batch.columns:
        binary_type = _BINARY_TYPES.get(column.type)
        viewed.append(column if binary_type is None else column.view(binary_type))
    pa.RecordBatch.from_arrays(viewed, names=batch.schema.names).validate(full=True)
    return batch


@contextmanager
def _open_parquet(file: InputFile) -> Iterator[pq.ParquetFile]:
    with _convert_arrow_errors(file, "Parquet file"):
        require_regular_file(file.path)
        with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
            yield opened


FORMATS = (RowFormat((".arrow", ".feather"), open_arrow_rows), RowFormat((".parquet",), open_parquet_rows))
