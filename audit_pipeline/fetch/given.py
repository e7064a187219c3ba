"""Texts that a caller holds in memory, as if they were a file.

What belongs here: giving them the places and the order that rows of a file have. What does not: files (read.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from audit_pipeline.fetch.opened import InputFile
from audit_pipeline.fetch.rows import TXT_COLUMN, Row
from audit_pipeline.fetch.stream import RowStream, TextStream

_NAME = "texts"


def given_texts(texts: Sequence[object]) -> TextStream:
    """``texts`` in their order; what is no usable text is skipped, as in a file, and named ``texts[3]``."""

    def rows(columns: Sequence[str] | None) -> Iterator[Row]:
        for index, text in enumerate(texts):
            yield Row(f"{_NAME}[{index}]", index, {TXT_COLUMN: text})

    stream = RowStream(InputFile(Path(_NAME), _NAME, kind=""), rows, columns=(TXT_COLUMN,), count=len(texts))
    return TextStream(stream, TXT_COLUMN)
