"""Rows of .xlsx and .ods files: those of the only sheet that is not empty, below its header."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from audit_pipeline.readers import spreadsheet_cells
from audit_pipeline.readers.file_bytes import InputFile
from audit_pipeline.readers.rows import Row, UnreadableFileError, clean_header
from audit_pipeline.readers.stream import Entries, RowFormat, RowStream

_GIBIBYTES = 4
"""The most memory that a spreadsheet may take."""


def open_spreadsheet(file: InputFile) -> RowStream:
    """Open a spreadsheet; raises UnreadableFileError where it cannot be read, has several sheets, or no header."""

    def read(columns: object) -> Entries:
        with _open_records(file) as records:
            header = _read_header(file, records)
            for index, (number, cells) in enumerate(records):
                values = {name: cell for name, cell in zip(header, cells, strict=True) if name}
                yield Row(f"{file.name}:{number}", index, values)

    with _open_records(file) as records:
        return RowStream(file, read, columns=tuple(filter(None, _read_header(file, records))))


def _read_header(file: InputFile, records: Iterator[tuple[int, list[object]]]) -> list[str]:
    for _, cells in records:
        return clean_header(file.path, cells)
    raise UnreadableFileError(file.path, "the file holds no rows")


@contextmanager
def _open_records(file: InputFile) -> Iterator[Iterator[tuple[int, list[object]]]]:
    """The rows that are not blank, with their numbers in the sheet."""
    script, memory = spreadsheet_cells.__file__, str(_GIBIBYTES * 1024**3)
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-I", script, str(file.path.absolute()), memory]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
            try:
                yield _iterate_records(file, process, errors)
            finally:
                process.kill()
                file.meter.position = None


def _iterate_records(
    file: InputFile, process: subprocess.Popen[bytes], errors: IO[bytes]
) -> Iterator[tuple[int, list[object]]]:
    assert process.stdout is not None
    number = 0
    file.meter.size, file.meter.position = json.loads(process.stdout.readline() or "0"), lambda: number
    for line in process.stdout:
        number += 1
        cells = json.loads(line)
        if any(cell != "" for cell in cells):
            yield number, cells
    if process.wait() < 0 or process.returncode == spreadsheet_cells.NO_MEMORY:
        raise UnreadableFileError(file.path, f"cannot be read within {_GIBIBYTES} GiB of memory: save it as .csv")
    if process.returncode:
        errors.seek(0)
        raise UnreadableFileError(file.path, errors.read().decode(errors="replace").strip().splitlines()[-1])


FORMAT = RowFormat((".xlsx", ".ods"), open_spreadsheet)
