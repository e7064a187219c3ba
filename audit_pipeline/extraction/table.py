"""The table of windows that is written for users.

What belongs here: its columns, and writing it. What does not: the numbers (conclude.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.tables import write_atomically, write_parquet
from audit_pipeline.extraction.search import Extracted

SCHEMA = pa.schema(
    [
        pa.field("document", pa.string()),
        pa.field("start", pa.int64()),
        pa.field("suffix_begin", pa.int64()),
        pa.field("suffix_end", pa.int64()),
        pa.field("tokens", pa.int64()),
        pa.field("log_p", pa.float64()),
        pa.field("log_p_top_40", pa.float64()),
        pa.field("outside_top_40", pa.int64()),
        pa.field("first_choices", pa.int64()),
    ]
)
"""One row per window: its document, its first character, the characters of its suffix, the tokens of the suffix, the
log-probability of the suffix under the whole distribution and among the 40 best tokens (minus infinity where one is not
among them), how many are not, and how many are the model's first choice."""


def write_windows(out: Path, found: Sequence[Extracted]) -> None:
    """Write the windows of all documents to ``out``, whole or not at all."""
    table = pa.concat_tables([SCHEMA.empty_table(), *map(_table, found)])
    write_atomically(out, lambda temporary: write_parquet(temporary, table))


def _table(one: Extracted) -> pa.Table:
    windows = one.windows
    return pa.Table.from_arrays(
        [
            pa.array([one.document.name] * len(windows), pa.string()),
            *(
                pa.array(values)
                for values in (
                    *(windows.start, windows.begin, windows.end, windows.tokens),
                    *(windows.log_p, windows.log_p_top, windows.outside, windows.matches),
                )
            ),
        ],
        schema=SCHEMA,
    )
