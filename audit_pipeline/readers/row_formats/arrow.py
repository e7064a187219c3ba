"""Rows of .arrow and .feather files, and of folders that `datasets` saved to disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pyarrow as pa

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.file_bytes import InputFile
from audit_pipeline.readers.regular_files import require_regular_file
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import Row, Skipped, UnreadableFileError, require_unique_columns

ROWS_AT_ONCE = 256
_FILE_MAGIC = b"ARROW1"
_STATE, _SPLITS = "state.json", "dataset_dict.json"


def open_arrow_rows(file: InputFile) -> RowStream:
    """Open an Arrow (Feather) file or stream; raises UnreadableFileError where it is neither."""
    return _open_arrow_files(file, [file.path])


def detect_saved_kind(folder: Path) -> Literal["rows", "splits"] | None:
    """What `datasets` saved in the folder: the rows of a data set, or several splits of one; None: neither."""
    if (folder / _STATE).is_file():
        return "rows"
    return "splits" if (folder / _SPLITS).is_file() else None


def open_saved_dataset(file: InputFile) -> RowStream:
    """Open a data set that `datasets` saved to disk; raises UnreadableFileError where that cannot be read."""
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


def iterate_rows(name: str, batches: Iterable[pa.RecordBatch]) -> Entries:
    """The rows of these batches of the file ``name``, numbered through from 1."""
    first = 0
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            part = batch.slice(start, ROWS_AT_ONCE)
            try:
                columns = [column.to_pylist() for column in part.columns]
            except (ValueError, OverflowError):
                yield from _convert_rows_singly(name, first, part)
            else:
                values = zip(*columns, strict=True) if columns else [()] * part.num_rows
                for index, cells in enumerate(values, first):
                    yield Row(f"{name}:{index + 1}", index, dict(zip(part.schema.names, cells, strict=True)))
            first += part.num_rows


@contextmanager
def arrow_faults_as_errors(file: InputFile, kind: str) -> Iterator[None]:
    """Faults that Arrow finds become UnreadableFileError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableFileError(file.path, f"is not a readable {kind} ({first_line})") from error


def _convert_rows_singly(name: str, first: int, batch: pa.RecordBatch) -> Entries:
    """The rows of a batch that does not convert as a whole: Arrow does not check that strings are UTF-8."""
    for offset in range(batch.num_rows):
        location, index = f"{name}:{first + offset + 1}", first + offset
        try:
            yield Row(location, index, batch.slice(offset, 1).to_pylist()[0])
        except UnicodeDecodeError as error:
            yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of a value")
        except (ValueError, OverflowError) as error:
            yield Skipped(location, index, f"a value that cannot be read: {to_one_line(error)}")


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
    columns: dict[str, None] = {}
    count = 0
    with arrow_faults_as_errors(file, "Arrow file"):
        for path in paths:
            with _open_ipc(path) as reader:
                columns.update(dict.fromkeys(require_unique_columns(file.path, reader.schema.names)))
                is_stream = isinstance(reader, pa.RecordBatchStreamReader)
                count += sum(batch.num_rows for batch in reader) if is_stream else reader.count_rows()

    def read(selected: Sequence[str] | None) -> Entries:
        with arrow_faults_as_errors(file, "Arrow file"):
            batches = (batch for path in paths for batch in _iterate_batches(path))
            yield from iterate_rows(file.name, (_select_and_validate(batch, selected) for batch in batches))

    return RowStream(file, read, tuple(columns), count)


@contextmanager
def _open_ipc(path: Path) -> Iterator[pa.RecordBatchFileReader | pa.RecordBatchStreamReader]:
    """An Arrow file or stream, which is mapped, not read into memory."""
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


def _select_and_validate(batch: pa.RecordBatch, columns: Sequence[str] | None) -> pa.RecordBatch:
    """These columns of the batch, checked through: Arrow reads what a damaged offset points to, wherever that is.

    Strings that are not UTF-8 pass here; each costs its own row. Raises pa.ArrowInvalid.
    """
    if columns is not None:
        batch = batch.select([name for name in columns if name in batch.schema.names])
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    viewed = [column.view(binary[column.type]) if column.type in binary else column for column in batch.columns]
    pa.RecordBatch.from_arrays(viewed, names=batch.schema.names).validate(full=True)
    return batch


FORMAT = RowFormat((".arrow", ".feather"), open_arrow_rows)
