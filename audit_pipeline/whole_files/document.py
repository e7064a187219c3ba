"""What reading such a file comes to.

What belongs here: the text with what the file says of itself, and why there is none. What does not: any format.
"""

from __future__ import annotations

from dataclasses import dataclass

from audit_pipeline.errors import DataError

MEBIBYTE = 1024 * 1024
MOST_FILE_BYTES = 256 * MEBIBYTE
MOST_TEXT_BYTES = 64 * MEBIBYTE


@dataclass(frozen=True)
class WholeDocument:
    """The running text of a file; ``title`` is what the file calls itself, where that can be relied on.

    ``problems`` are parts of it that could not be read, each with the reason.
    """

    text: str
    title: str | None = None
    problems: tuple[tuple[str, str], ...] = ()


class NoTextError(DataError):
    """The file is whole, but there is no text to be had of it: locked, a scan, empty. The message says which."""
