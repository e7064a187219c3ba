"""Errors that a user can act on.

What belongs here: the exception types that the command line turns into one line and exit code 2, and that line, less
what it should not quote. What does not: programming errors, which stay ordinary exceptions with a traceback.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import unicodedata
from itertools import groupby

OTHER_VERSION = "made by another version of Corpus Audit: start a new folder"
"""The end of what is said of files of another layout: none is read."""


class AuditError(Exception):
    """What is wrong with the user's input or surroundings, and what to do about it, in one line."""


class ConfigError(AuditError):
    """A file under config/ (or an entry in it) that cannot be used as it is."""


class DataError(AuditError):
    """Input data that cannot be used at all: no readable row, no such column, one class only."""


class FailedCheckError(DataError):
    """A blocking check of a product failed. The product stays in place."""


class ModelError(AuditError):
    """A model or tokenizer that cannot be found, read or trusted."""


class NotApplicableError(DataError):
    """A benchmark that was made for other models: it has nothing to ask of this one."""


class SourceError(AuditError):
    """A source of documents that yielded nothing: not reachable, or not what it says it is."""


class BudgetError(AuditError):
    """Work that would exceed a limit the user has set, found out before it starts."""


class TransientError(AuditError):
    """A fault of the surroundings that may be gone in a moment: a host that does not answer."""


class UnansweredError(TransientError):
    """A request that a server did not answer in spite of all attempts; ``status`` where there was one."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class ClusterError(AuditError):
    """Machines that were to run a model, and did not: not reachable, or without a result for too long."""


class PairsFailedError(AuditError):
    """Some pairs of a run met a fault; the others are done, and those can be run again."""


class RebuiltWarning(UserWarning):
    """Something that was kept is damaged, or cannot be read, and is made again."""


class SkippedPluginWarning(UserWarning):
    """Something that an installed package brings, and that cannot be used."""


class OtherTokenizerWarning(UserWarning):
    """A tokenizer that transformers builds otherwise than its file says."""


class ModelFilesWarning(UserWarning):
    """A choice among the files of a model that its user should know: some are not read, or two disagree."""


def is_full_disk(error: OSError) -> bool:
    """Whether the system says that a disk, or a quota, is full."""
    # Of a folder that is copied: all that failed, each in words.
    of_copy = isinstance(error, shutil.Error) and os.strerror(errno.ENOSPC) in str(error)
    return of_copy or error.errno in (errno.ENOSPC, errno.EDQUOT)


def to_one_line(error: BaseException | str) -> str:
    """Return the message of an error in one line, with unprintable characters spelled out."""
    return escape_unprintable(" ".join(str(error).split()))


# Persian and the scripts of India need the joiners to be spelled right.
_HARMLESS = "\u200c\u200d"


def escape_unprintable(text: str, keep: str = "") -> str:
    """Return ``text`` with each character spelled out that a terminal obeys, or that hides or reorders others.

    Line breaks are among them, since a name with a line break could forge a line of output. So are escape sequences,
    marks of direction and lone surrogates. Blanks of any width stay.

    Args:
        keep: Characters that stay as well.
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in keep or letter in _HARMLESS or unicodedata.category(letter) == "Zs"
        else repr(letter)[1:-1]
        for letter in text
    )


# Characters in a row that are the prompt's: no message has as many of its own.
_QUOTE = 12


def redact_prompt(words: str, prompt: str) -> str:
    """What a server says, less what it quotes of the prompt that it was sent."""
    ways = to_one_line(prompt), json.dumps(prompt), json.dumps(prompt, ensure_ascii=False), repr(prompt)
    quoted = [False] * len(words)
    for start in range(len(words) - _QUOTE + 1):
        if any(words[start : start + _QUOTE] in way for way in ways):
            quoted[start : start + _QUOTE] = [True] * _QUOTE
    parts = groupby(zip(words, quoted, strict=True), key=lambda pair: pair[1])
    return "".join("…" if is_quote else "".join(letter for letter, _ in part) for is_quote, part in parts)
