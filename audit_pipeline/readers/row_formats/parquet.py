"""Reader of the rows of .parquet files, with a check of page checksums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow.parquet as pq

from audit_pipeline.readers.file_bytes import InputFile
from audit_pipeline.readers.regular_files import require_regular_file
from audit_pipeline.readers.row_formats.arrow import ROWS_AT_ONCE, arrow_faults_as_errors, iterate_rows
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import require_unique_columns


def open_parquet_rows(file: InputFile) -> RowStream:
    """Open a Parquet file.

    Raises:
        UnreadableFileError: If the file is not a readable Parquet file.
    """
    with _open(file) as opened:
        columns = require_unique_columns(file.path, opened.schema_arrow.names)
        count = opened.metadata.num_rows

    def read(names: Sequence[str] | None) -> Entries:
        with _open(file) as opened:
            yield from iterate_rows(file.name, opened.iter_batches(ROWS_AT_ONCE, columns=names and list(names)))

    return RowStream(file, read, columns, count)


@contextmanager
def _open(file: InputFile) -> Iterator[pq.ParquetFile]:
    with arrow_faults_as_errors(file, "Parquet file"):
        require_regular_file(file.path)
        with pq.ParquetFile(file.path, page_checksum_verification=True) as opened:
            yield opened


FORMAT = RowFormat((".parquet",), open_parquet_rows)
