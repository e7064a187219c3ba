"""Text files.

What belongs here: bytes to text. What does not: marks within the text: Markdown is read as it is written.
"""

from __future__ import annotations

from pathlib import Path

from audit_pipeline.errors import DataError
from audit_pipeline.whole_files.document import WholeDocument


def read_plain(path: Path) -> WholeDocument:
    """The file's text as it stands, lines ending in \\n; raises DataError where it is not UTF-8."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
    return WholeDocument(text.replace("\r\n", "\n"))
