"""Reader of .txt files with one text per line. To read a .txt file as one document, use readers/whole_files/."""

from __future__ import annotations

from audit_pipeline.readers.file_bytes import InputFile, iterate_lines, open_bytes
from audit_pipeline.readers.row_stream import Entries, RowFormat, RowStream
from audit_pipeline.readers.text_rows import TXT_COLUMN, Row, Skipped


def open_text_lines(file: InputFile) -> RowStream:
    """Open a file that has one text per line."""

    def read(columns: object) -> Entries:
        with open_bytes(file) as binary:
            for index, (number, line) in enumerate(iterate_lines(file, binary)):
                location = f"{file.name}:{number}"
                try:
                    yield Row(location, index, {TXT_COLUMN: line.decode()})
                except UnicodeDecodeError as error:
                    yield Skipped(location, index, f"invalid UTF-8 at byte {error.start} of the line")

    return RowStream(file, read, columns=(TXT_COLUMN,))


FORMAT = RowFormat((".txt",), open_text_lines, is_compressible=True, has_columns=False)
