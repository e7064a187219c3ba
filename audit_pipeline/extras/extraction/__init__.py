"""Probabilistic extraction: the probability that a model reproduces passages of a document.

This package chooses the windows of a document, runs a model on them and draws conclusions about the document. The
forward pass is in token_statistics/. Commands and their output are in commands.py and command_output.py.

This file contains the default settings. It imports little, so commands start fast.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = 50
"""The number of tokens of a window that the model reads before the suffix."""
SUFFIX = 50
"""The number of tokens of a window after the prefix. The probability of these tokens is computed."""

COARSE_TO_FINE = "coarse-to-fine"
"""The stride that covers a document with windows of adjacent suffixes, and adds finer windows near likely passages."""
CHARS = "chars:"
"""The beginning of the name of a stride in characters. With ``chars:10``, a window begins every 10 characters."""
ANSWERS = "answers"
"""The value of the column ``stride`` for answers. Each answer has one window, which ends in the answer."""

BEAMS = 20
"""The number of continuations that the near-verbatim search follows at a time."""


@dataclass(frozen=True)
class WindowLengths:
    """The lengths of a window's prefix and suffix, in tokens."""

    prefix: int
    suffix: int

    @property
    def window(self) -> int:
        """Return the length of the window in tokens."""
        return self.prefix + self.suffix
