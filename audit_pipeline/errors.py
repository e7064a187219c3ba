"""Errors and warnings that a user can act on, and the formatting of their messages.

The command line reports an AuditError in one line and exits with code 2. Programming errors are other exceptions, which
keep their traceback.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import unicodedata

OTHER_VERSION = "made by another version of Corpus Audit: start a new folder"
"""The end of error messages about files with an incompatible layout."""


class AuditError(Exception):
    """A problem with the user's input or environment. The message is one line: what happened, then what to do."""


class ConfigError(AuditError):
    """An invalid file under config/, or an invalid entry in it."""


class DataError(AuditError):
    """Unusable input data: no readable row, a missing column, or only one class."""


class FailedCheckError(DataError):
    """A failed blocking check of a product. The product stays in place."""


class ModelError(AuditError):
    """A model or tokenizer that is missing, unreadable or untrusted."""


class NotApplicableError(DataError):
    """A benchmark that was made for other models and does not apply to this model."""


class SourceError(AuditError):
    """A source without documents: it is unreachable, or its content is not as declared."""


class BudgetError(AuditError):
    """Planned work that would exceed a limit of the user."""


class TransientError(AuditError):
    """A temporary fault of the environment, such as a host that does not respond."""


class UnansweredError(TransientError):
    """A request without a usable response after all attempts.

    Attributes:
        status: The last HTTP status, or None if there was no response.
    """

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class ClusterError(AuditError):
    """A cluster of machines that is unreachable, or that returned no result in time."""


class PairsFailedError(AuditError):
    """A run with failed pairs. The other pairs are done, and the failed pairs can be run again."""


class RebuiltWarning(UserWarning):
    """A stored file that is corrupt or unreadable, and is rebuilt."""


class SkippedPluginWarning(UserWarning):
    """A plug-in of an installed package that cannot be used."""


class OtherTokenizerWarning(UserWarning):
    """A tokenizer that transformers builds differently from its file."""


class ModelFilesWarning(UserWarning):
    """A choice among the files of a model: some are skipped, or two contradict each other."""


def is_full_disk(error: OSError) -> bool:
    """Return whether the error reports a full disk or an exhausted quota."""
    # The error of a copied folder has no errno. It lists the messages of all files.
    is_full_in_copy = isinstance(error, shutil.Error) and os.strerror(errno.ENOSPC) in str(error)
    return is_full_in_copy or error.errno in (errno.ENOSPC, errno.EDQUOT)


def to_one_line(error: BaseException | str) -> str:
    """Return the message of an error in one line, with unprintable characters spelled out."""
    return escape_unprintable(" ".join(str(error).split()))


# Persian and the scripts of India need these joiners in correct spelling.
_JOINERS = "\u200c\u200d"


def escape_unprintable(text: str, keep: str = "") -> str:
    """Escape the characters of a text that a terminal interprets, or that hide or reorder other characters.

    Line breaks are escaped, because a name with a line break could forge a line of output. So are escape sequences,
    direction marks and lone surrogates. Blanks of any width stay.

    Args:
        text: The text.
        keep: Other characters that stay.
    """
    if text.isprintable():
        return text
    escaped: list[str] = []
    for letter in text:
        is_safe = letter.isprintable() or letter in keep or letter in _JOINERS or unicodedata.category(letter) == "Zs"
        escaped.append(letter if is_safe else repr(letter)[1:-1])
    return "".join(escaped)


# The minimum length of a quote of the prompt. Shorter matches occur by chance.
_QUOTE_CHARACTERS = 12


def redact_prompt(message: str, prompt: str) -> str:
    """Replace quotes of the prompt in a server's message by an ellipsis."""
    # A server may quote the prompt as text, as JSON or as a Python literal.
    forms = (to_one_line(prompt), json.dumps(prompt), json.dumps(prompt, ensure_ascii=False), repr(prompt))
    is_quoted = [False] * len(message)
    for start in range(len(message) - _QUOTE_CHARACTERS + 1):
        end = start + _QUOTE_CHARACTERS
        if any(message[start:end] in form for form in forms):
            is_quoted[start:end] = [True] * _QUOTE_CHARACTERS
    redacted = ""
    for position, letter in enumerate(message):
        if not is_quoted[position]:
            redacted += letter
        elif position == 0 or not is_quoted[position - 1]:
            redacted += "…"
    return redacted
