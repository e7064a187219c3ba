"""What reading such a file comes to.

What belongs here: the text with what the file says of itself, and why there is none. What does not: any format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from audit_pipeline.errors import DataError

MEBIBYTE = 1024 * 1024
MOST_FILE_BYTES = 256 * MEBIBYTE
MOST_TEXT_BYTES = 64 * MEBIBYTE

_LONGEST_TITLE = 300
# What programs write where nobody gave a title, and names of files.
_NO_TITLE = re.compile(
    r"(?:untitled|document|unbenannt|ohne titel|sans titre|powerpoint presentation|title|unknown)\W*\d*"
    r"|microsoft (?:word|powerpoint|excel)\b.*"
    r"|\S+\.(?:docx?|dotx?|rtf|odt|pdf|indd|qxd|tex|dvi|ps|txt|md|html?|epub|pages|pptx?)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class WholeDocument:
    """The running text of a file; ``title`` is what the file calls itself, where that can be relied on.

    ``problems`` are parts of it that could not be read, each with the reason.
    """

    text: str
    title: str | None = None
    problems: tuple[tuple[str, str], ...] = ()


def usable_title(given: str | None) -> str | None:
    """``given`` with its blanks levelled; None where it is empty, the name of a file, or what a program wrote alone."""
    title = " ".join((given or "").split())
    if not title or len(title) > _LONGEST_TITLE or not title.isprintable() or _NO_TITLE.fullmatch(title):
        return None
    return title


class NoTextError(DataError):
    """The file is whole, but there is no text to be had of it: locked, a scan, empty. The message says which."""
