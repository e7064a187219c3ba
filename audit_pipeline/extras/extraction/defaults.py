"""How documents are searched by default."""

from __future__ import annotations

PREFIX, SUFFIX = 50, 50
"""How many tokens a model is given, and how many it has to give."""

COARSE_TO_FINE = "coarse-to-fine"
"""Where windows of a document begin: tiled, and closer where a passage could be likely."""

BEAMS = 20
"""How many continuations are followed where a passage is asked for nearly word for word."""
