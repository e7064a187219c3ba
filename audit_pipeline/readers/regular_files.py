"""Opening of regular files, and phrases for what other paths are, such as "a pipe".

Opening a named pipe waits until a program writes to it, and reading a device may never end. Therefore only regular
files are opened.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

BROKEN_LINK = "a broken link"
VANISHED = "a file that has vanished"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Windows has no flag O_NONBLOCK, and no pipes in its file system.
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def find_irregular_kind(path: Path) -> str | None:
    """Return a phrase for what a path is, such as "a pipe", or None for a regular file or a link to one."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link to itself or in a circle"
        if isinstance(error, FileNotFoundError):
            return BROKEN_LINK if os.path.islink(path) else VANISHED
        return f"a file that cannot be reached ({error.strerror})"
    return _name_kind(mode)


def is_unicode(name: str) -> bool:
    """Return True if a file name is valid UTF-8. Python represents invalid bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def open_regular_file(path: Path) -> BufferedReader:
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
    kind = _name_kind(os.fstat(descriptor).st_mode)
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


def _name_kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")
