"""The default settings of the search of documents. This module is light, so that commands start fast."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = 50
"""The number of tokens that the model reads."""
SUFFIX = 50
"""The number of tokens after the prefix whose probability is computed."""

COARSE_TO_FINE = "coarse-to-fine"
"""The stride that tiles a document with windows and adds finer windows near likely passages."""
CHARS = "chars:"
"""The start of a stride in characters, such as ``chars:10``."""

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
