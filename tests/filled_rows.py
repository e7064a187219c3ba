"""The older name of made_rows.make_row, until tests/extras/corpora has it no more."""

from __future__ import annotations

from made_rows import make_row as filled

__all__ = ["filled"]
