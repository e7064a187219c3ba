"""The bytes of users' files: plain, compressed or from standard input, with progress and a limit for lines.

Only regular files are opened. Opening a named pipe waits until a program writes to it, and reading a device may never
end. The errors for other paths describe them, for example as "a pipe".
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from audit_pipeline.errors import to_one_line
from audit_pipeline.readers.text_rows import UnreadableFileError

STANDARD_INPUT = Path("-")
COMPRESSIONS = (".gz", ".zst")
MEBIBYTE = 1024 * 1024
LINE_LIMIT = 64 * MEBIBYTE
SAMPLE_BYTES = 256 * 1024
"""Number of bytes at the beginning of a file that are read to detect its dialect, such as the separator of columns."""
BROKEN_LINK = "a broken link"
VANISHED = "a file that has vanished"
_BUFFER = 64 * 1024
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has no flag O_NONBLOCK, and no pipes in its file system.
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@dataclass
class Meter:
    """The progress of reading a file.

    Attributes:
        size: The size of the file in bytes on disk. For spreadsheets, it is the number of rows.
        position: Returns the number of bytes or rows that have been read so far. None if the file is closed.
    """

    size: int = 0
    position: Callable[[], int] | None = None

    @property
    def share(self) -> float:
        """Return the share of the file that has been read, from 0 to 1. It is 1 for empty and closed files."""
        if not self.size or self.position is None:
            return 1.0
        return self.position() / self.size


@dataclass(frozen=True)
class InputFile:
    """A file to read, as the reader of its format gets it.

    Attributes:
        path: The path.
        name: The name of the file in the locations of rows, such as texts.jsonl.
        kind: The suffix of the format, such as .jsonl, without the suffix of the compression.
        packed: The suffix of the compression (.gz or .zst), or "" if the file is not compressed.
        string_lines: The column for values that are JSON strings instead of objects, or None to skip such values.
        spooled: A temporary file with the content of standard input, or None for other files.
        meter: The progress of reading.
    """

    path: Path
    name: str
    kind: str
    packed: str = ""
    string_lines: str | None = None
    spooled: IO[bytes] | None = None
    meter: Meter = field(default_factory=Meter, compare=False)


def find_irregular_kind(path: Path) -> str | None:
    """Return a description of a path, such as "a pipe", or None for a regular file or a link to a regular file."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads back to itself"
        if isinstance(error, FileNotFoundError):
            return BROKEN_LINK if os.path.islink(path) else VANISHED
        return f"a file that cannot be reached ({error.strerror})"
    return _describe_mode(mode)


def describe_invalid_bytes(error: UnicodeDecodeError, encoding: str = "UTF-8") -> str:
    """Return a phrase with the position of the first invalid byte. The first byte of the decoded bytes is byte 1."""
    return f"invalid {encoding} at byte {error.start + 1}"


def is_unicode(name: str) -> bool:
    """Return True if a file name is valid UTF-8. Python represents invalid bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_regular_file(path: Path) -> io.BufferedReader:
    """Open a regular file for reading bytes.

    Raises:
        OSError: If the file cannot be opened or is not a regular file. The opened file itself is checked, so that a
            path which was replaced by a pipe a moment before is also detected.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    except OSError as error:
        kind = find_irregular_kind(path)
        if kind is None or kind == VANISHED:
            raise
        raise OSError(error.errno, f"it is {kind}", str(path)) from error
    kind = _describe_mode(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_regular_file(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises:
        OSError: As :func:`open_regular_file`.
    """
    with open_regular_file(path) as file:
        return file.read()


def require_regular_file(path: Path) -> None:
    """Check that a path is a regular file, before a library opens it by its name.

    Raises:
        OSError: As :func:`open_regular_file`.
    """
    open_regular_file(path).close()


@contextmanager
def open_bytes(file: InputFile) -> Iterator[BinaryIO]:
    """Open the uncompressed bytes of a file from the beginning, and update ``file.meter``.

    Raises:
        UnreadableFileError: If the file cannot be read or decompressed. The error may also occur later, while the
            caller reads the bytes.
    """
    with ExitStack() as stack:
        stack.enter_context(convert_read_errors(file))
        raw = file.spooled if file.spooled is not None else stack.enter_context(open_regular_file(file.path))
        size = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        content = io.BufferedReader(_NonClosingReader(raw), _BUFFER)
        file.meter.size = size
        file.meter.position = content.tell
        stack.callback(setattr, file.meter, "position", None)
        unpacked: Any = content
        if file.packed == ".gz":
            unpacked = stack.enter_context(gzip.GzipFile(fileobj=content))
        elif file.packed == ".zst":
            # The help of commands imports this module, so pyarrow is imported only for such a file.
            import pyarrow as pa  # noqa: PLC0415

            stream = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(content, "r"), "zstd"))
            unpacked = io.BufferedReader(_NonClosingReader(stream), _BUFFER)
        yield cast(BinaryIO, unpacked)


@contextmanager
def convert_read_errors(file: InputFile) -> Iterator[None]:
    """Convert errors of the disk and of decompression that the block raises to UnreadableFileError."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableFileError(
            file.path,
            f"the file is not a readable .gz file ({to_one_line(error)}). It may be truncated. Use another copy.",
        ) from error
    except OSError as error:
        raise UnreadableFileError(
            file.path, f"the file cannot be read ({error.strerror or to_one_line(error)})"
        ) from error


def iterate_lines(file: InputFile, binary: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines with their numbers from 1, without line ends and byte-order mark.

    Only a line feed separates lines. Other separators of Unicode may occur within a line.

    Raises:
        UnreadableFileError: If a line is longer than 64 MiB, or the file is in UTF-16.
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
    """Return a text file that decodes the bytes as UTF-8 and keeps line ends unchanged.

    Invalid bytes become lone surrogates, so that the reader of rows skips only the rows with invalid bytes.
    Closing the text file also closes ``binary``.
    """
    return io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")


def require_line_within_limit(file: InputFile, line: bytes | str, number: int) -> None:
    """Raise UnreadableFileError if a line is longer than 64 MiB."""
    if len(line) > LINE_LIMIT:
        most = f"{LINE_LIMIT // MEBIBYTE} MiB"
        raise UnreadableFileError(file.path, f"line {number} is longer than {most}. Check that the file contains rows.")


def refuse_utf16(file: InputFile, start: bytes) -> None:
    """Raise UnreadableFileError if a file begins with the byte-order mark of UTF-16."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UnreadableFileError(file.path, "the text is in UTF-16. Save it as UTF-8.")


def read_standard_input() -> InputFile:
    """Copy standard input to a temporary file, because files are read several times. Return it as lines of JSON.

    Raises:
        UnreadableFileError: If standard input is closed or is not text.
    """
    if sys.stdin is None:
        raise UnreadableFileError(
            Path("standard input"), "it is closed. Pipe lines of JSON to the command, or name a file instead of -."
        )
    # Python closes and removes the temporary file when the last reference to it is gone.
    spooled = tempfile.TemporaryFile()  # noqa: SIM115
    while piece := sys.stdin.buffer.read(MEBIBYTE):
        spooled.write(piece)
    file = InputFile(Path("standard input"), "standard input", ".jsonl", spooled=spooled)
    spooled.seek(0)
    start = spooled.read(4096)
    refuse_utf16(file, start)
    if b"\0" in start or start.startswith(_ZSTANDARD):
        raise UnreadableFileError(
            file.path,
            "the input is not text, but must consist of lines of JSON. For other formats name a file instead of -.",
        )
    return file


class _NonClosingReader(io.RawIOBase):
    """A raw reader of an open file that reports the file's position. Closing the reader does not close the file."""

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


def _describe_mode(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")
