"""The bytes of a user's file: plain, compressed or from standard input, counted and bounded."""

from __future__ import annotations

import codecs
import gzip
import io
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.regular_files import open_regular_file
from audit_pipeline.readers.text_rows import UnreadableFileError

STANDARD_INPUT = Path("-")
COMPRESSIONS = (".gz", ".zst")
MEBIBYTE = 1024 * 1024
LINE_LIMIT = 64 * MEBIBYTE
SAMPLE_BYTES = 256 * 1024
"""How much of a file is read to recognise how it is written."""

_BUFFER = 64 * 1024
_ZSTANDARD = b"\x28\xb5\x2f\xfd"


@dataclass
class Meter:
    """How far a file has been read, in bytes as they lie on disk or in rows: all of it once it is closed."""

    size: int = 0
    position: Callable[[], int] | None = None

    @property
    def share(self) -> float:
        """The share that has been read; 1 where there is nothing to read."""
        return self.position() / self.size if self.size and self.position is not None else 1.0


@dataclass(frozen=True)
class InputFile:
    """A file as the reader of its format gets it.

    ``name`` is what locations call it; ``kind`` its suffix, ``packed`` what follows that (.gz, .zst).
    ``string_lines``: the column of a value of JSON that is a string and no object; None: it is no row.
    ``spooled`` holds what came by standard input.
    """

    path: Path
    name: str
    kind: str
    packed: str = ""
    string_lines: str | None = None
    spooled: IO[bytes] | None = None
    meter: Meter = field(default_factory=Meter, compare=False)


@contextmanager
def open_bytes(file: InputFile) -> Iterator[BinaryIO]:
    """The file's bytes from the beginning, unpacked. ``file.meter`` follows them.

    Raises UnreadableFileError, within the block too, for what the disk or the compression refuses.
    """
    with ExitStack() as stack:
        stack.enter_context(faults_as_errors(file))
        raw = file.spooled if file.spooled is not None else stack.enter_context(open_regular_file(file.path))
        size = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        content = io.BufferedReader(_NonClosingReader(raw), _BUFFER)
        file.meter.size, file.meter.position = size, content.tell
        stack.callback(setattr, file.meter, "position", None)
        unpacked: Any = content
        if file.packed == ".gz":
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=content))
        elif file.packed == ".zst":
            stream = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(content, "r"), "zstd"))
            unpacked = io.BufferedReader(_NonClosingReader(stream), _BUFFER)
        yield cast(BinaryIO, unpacked)


@contextmanager
def faults_as_errors(file: InputFile) -> Iterator[None]:
    """Faults of disk and compression become UnreadableFileError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableFileError(
            file.path, f"is not a readable .gz file ({to_one_line(error)}): it may be cut off; use another copy"
        ) from error
    except OSError as error:
        raise UnreadableFileError(file.path, f"cannot be read ({error.strerror or to_one_line(error)})") from error


def iterate_lines(file: InputFile, binary: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Non-blank lines with their 1-based numbers, without line ends and byte-order mark; only \\n ends a line.

    Raises UnreadableFileError for a line of more than 64 MiB, and where the file is in UTF-16.
    """
    number = 0
    while line := binary.readline(LINE_LIMIT + 1):
        number += 1
        require_line_within_limit(file, line, number)
        if number == 1:
            refuse_utf16(file, line)
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield number, line.rstrip(b"\r\n")


def decode_text(binary: BinaryIO) -> io.TextIOWrapper:
    """The bytes as text, line ends as they are. Bytes that are not UTF-8 become lone surrogates: they cost the row that
    holds them and no other. Closing it closes ``binary``."""
    return io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")


def require_line_within_limit(file: InputFile, line: bytes | str, number: int) -> None:
    """Raise UnreadableFileError for a line that is longer than is read."""
    if len(line) > LINE_LIMIT:
        most = f"{LINE_LIMIT // MEBIBYTE} MiB"
        raise UnreadableFileError(file.path, f"line {number} is longer than {most}: is this a file of rows?")


def refuse_utf16(file: InputFile, start: bytes) -> None:
    """Raise UnreadableFileError where the file begins as UTF-16 does."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnreadableFileError(file.path, "is in UTF-16; save it as UTF-8")


def read_standard_input() -> InputFile:
    """All of standard input, kept in a temporary file that goes with this process: it is gone through several times.

    Raises UnreadableFileError where it holds no text.
    """
    if sys.stdin is None:
        raise UnreadableFileError(Path("standard input"), "is closed: nothing can be read from it")
    # Closed, and so removed, once no reference remains.
    spooled = tempfile.TemporaryFile()  # noqa: SIM115
    while piece := sys.stdin.buffer.read(MEBIBYTE):
        spooled.write(piece)
    file = InputFile(Path("standard input"), "standard input", ".jsonl", spooled=spooled)
    spooled.seek(0)
    start = spooled.read(4096)
    refuse_utf16(file, start)
    if b"\0" in start or start.startswith(_ZSTANDARD):
        raise UnreadableFileError(
            file.path, "is read as lines of JSON, and this is no text: give the name of a file instead of -"
        )
    return file


class _NonClosingReader(io.RawIOBase):
    """A file that stays open when its reader is done with it, and says where it is."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._raw.tell()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        piece = self._raw.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
