"""How documents are searched by default."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX, SUFFIX = 50, 50
"""How many tokens a model is given, and how many it has to give."""

COARSE_TO_FINE = "coarse-to-fine"
"""Where windows of a document begin: tiled, and closer where a passage could be likely."""
CHARS = "chars:"
"""Before the number of characters from one window to the next."""

BEAMS = 20
"""How many continuations are followed where a passage is asked for nearly word for word."""


@dataclass(frozen=True)
class WindowLengths:
    """How many tokens the model is given, and how many it is asked for after them."""

    prefix: int
    suffix: int

    @property
    def window(self) -> int:
        return self.prefix + self.suffix
