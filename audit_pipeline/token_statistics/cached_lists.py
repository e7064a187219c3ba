"""Cached rows of lists as arrays, by text.

What belongs here: taking them out of a table without copying. What does not: which rows (kept.py), what they
mean (scoring/needs/).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def lists_by_text(table: pa.Table, names: Sequence[str]) -> dict[str, Mapping[str, npt.NDArray[Any]]]:
    """The lists ``names`` of each row, by its text's sha256; they share the table's memory."""
    found: dict[str, Mapping[str, npt.NDArray[Any]]] = {}
    for batch in table.to_batches():
        columns = {name: batch.column(name) for name in names}
        values = {name: column.values.to_numpy(zero_copy_only=True) for name, column in columns.items()}
        ends = {name: column.offsets.to_numpy() for name, column in columns.items()}
        for row, sha256 in enumerate(batch.column("text_sha256").to_pylist()):
            found[sha256] = {name: np.asarray(values[name][ends[name][row] : ends[name][row + 1]]) for name in names}
    return found
