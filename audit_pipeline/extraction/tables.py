"""From what was found to the tables that are kept, and the one that is written for users.

What belongs here: the rows. What does not: the numbers (conclude.py, held_out.py, rates.py), where tables are kept
(operate/stages/).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from audit_pipeline.catalogue.contracts import (
    DOCUMENT_MEMORISATION,
    EXTRACTION_RATES,
    EXTRACTION_WINDOWS,
    Pair,
    Table,
)
from audit_pipeline.catalogue.tables import checked, table_from_rows, write_atomically, write_parquet
from audit_pipeline.extraction.conclude import THRESHOLDS, Ints, Windows
from audit_pipeline.extraction.documents import Quoted
from audit_pipeline.extraction.held_out import Compared, compare
from audit_pipeline.extraction.rates import extraction_rates
from audit_pipeline.extraction.search import Asked, Extracted
from audit_pipeline.metrics.claims import extraction_claim

_OF_RUN = ("model", "benchmark", "run_id")
_NEAR = "log_p_near_verbatim"
_QUOTED = ("prefix_excerpt", "suffix_pieces", "first_choice_pieces")

Quote = Mapping[int, Quoted]
"""The passages of a document that are quoted, by the number of their window."""


def extraction_tables(
    found: Sequence[Extracted],
    quotes: Sequence[Quote],
    near: Mapping[str, float],
    pair: Pair,
    asked: Asked,
    run_id: str,
    no_window: str,
) -> dict[Table, pa.Table]:
    """Every table of what was found of a pair's documents.

    ``near``: the log-probability of the strongest passage nearly word for word, by the document's name. ``no_window``
    says why a document has no window.
    """
    of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    windows = pa.concat_tables(
        [_windows_of(one, quote, near.get(one.document.name)) for one, quote in zip(found, quotes, strict=True)]
        or [_WINDOWS.empty_table()]
    )
    for name, value in of_run.items():
        windows = windows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(windows)))
    rates = [
        {
            **of_run,
            **{"unit": one.unit, "name": one.name, "side": one.side, "threshold": one.threshold},
            "rule": "first_choices" if one.threshold is None else "probability",
            **{"n_documents": one.documents, "characters": one.characters, "covered": one.covered},
            **{"covered_low": one.covered_interval.low, "covered_high": one.covered_interval.high},
            **{"n_reached": one.n_reached, "reached": one.n_reached / one.documents},
            **{"reached_low": one.reached_low, "reached_high": one.reached_high},
            "median_log_p": one.median_log_p if math.isfinite(one.median_log_p) else None,
        }
        for one in extraction_rates(found, pair.benchmark)
    ]
    documents = [
        {**of_run, **_document_row(one, test, asked, no_window)}
        for one, test in zip(found, compared_with_held_out(found), strict=True)
    ]
    return {
        EXTRACTION_WINDOWS: checked(windows.select(EXTRACTION_WINDOWS.names), EXTRACTION_WINDOWS),
        EXTRACTION_RATES: table_from_rows(rates, EXTRACTION_RATES),
        # Last: where it is, the others are.
        DOCUMENT_MEMORISATION: table_from_rows(documents, DOCUMENT_MEMORISATION),
    }


def compared_with_held_out(found: Sequence[Extracted]) -> list[Compared | None]:
    """The test of each audited document against the held-out ones; None for these, and where there are none."""
    audited = [one for one in found if one.document.side == "audited"]
    held_out = [one.compared for one in found if one.document.side == "held_out" and len(one.windows)]
    tests = iter(compare([one.compared for one in audited], held_out) if held_out else [None] * len(audited))
    return [next(tests) if one.document.side == "audited" else None for one in found]


def write_windows(out: Path, found: Sequence[Extracted]) -> None:
    """Write the windows of all documents to ``out``, whole or not at all, as EXTRACTION_WINDOWS without quotations and
    what is nearly word for word."""
    table = pa.concat_tables([_windows_of(one, {}) for one in found] or [_WINDOWS.empty_table()]).drop_columns(
        [*_QUOTED, _NEAR]
    )
    write_atomically(out, lambda temporary: write_parquet(temporary, table))


_WINDOWS = pa.schema([field for field in EXTRACTION_WINDOWS.schema if field.name not in _OF_RUN])


def _windows_of(one: Extracted, quotes: Quote, near: float | None = None) -> pa.Table:
    windows, strength = one.windows, {number: place for place, number in enumerate(one.found.strongest, 1)}
    numbers = range(len(windows))
    columns = {
        "document_id": [one.document.name] * len(windows),
        **{"start": windows.start, "suffix_begin": windows.begin, "suffix_end": windows.end, "tokens": windows.tokens},
        "log_p": windows.log_p,
        "log_p_top_40": [
            value if windows.top_is_known and math.isfinite(value) else None for value in windows.log_p_top.tolist()
        ],
        **{"outside_top_40": _or_nulls(windows.outside, windows), "first_choices": _or_nulls(windows.matches, windows)},
        "is_coarse": one.is_coarse,
        "set_apart": one.judged.reasons,
        "reference_log_p": [None if np.isnan(value) else value for value in one.judged.reference_log_p.tolist()],
        "strength": [strength.get(number) for number in numbers],
        _NEAR: [near if strength.get(number) == 1 and near != -math.inf else None for number in numbers],
        "prefix_excerpt": [quotes[number].prefix if number in quotes else None for number in numbers],
        "suffix_pieces": [quotes[number].pieces if number in quotes else () for number in numbers],
        "first_choice_pieces": [quotes[number].first_choices if number in quotes else () for number in numbers],
    }
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in _WINDOWS], schema=_WINDOWS)


def _or_nulls(counts: Ints | None, windows: Windows) -> Ints | list[None]:
    return [None] * len(windows) if counts is None else counts


def _document_row(one: Extracted, test: Compared | None, asked: Asked, no_window: str) -> Mapping[str, object]:
    document, found, some = one.document, one.found, len(one.windows) > 0
    strongest = one.windows.log_p[found.strongest[0]] if found.strongest else None
    covered = {
        f"covered_at_{str(threshold).replace('.', '_')}": share if some else None
        for threshold, share in zip(THRESHOLDS, found.covered, strict=True)
    }
    return {
        "document_id": document.name,
        **{"title": document.title, "group": document.group, "collection": document.collection},
        **{"side": document.side, "occurrences": document.occurrences, "characters": found.characters},
        **{"prefix_tokens": asked.lengths.prefix, "suffix_tokens": asked.lengths.suffix, "stride": asked.stride},
        **{"windows": found.windows, "reason": None if some else no_window},
        **{"reproduced": found.reproduced, "set_apart": found.set_apart},
        "predictable": sum(reason == "predictable" for reason in one.judged.reasons),
        **covered,
        "covered_by_first_choices": found.greedy if some else None,
        "covered_set_apart": found.covered_set_apart if some else None,
        "longest_run": found.longest_run,
        "longest_run_words": found.longest_run_words,
        "log_p": strongest,
        "claim": extraction_claim(found.reproduced) if some else None,
        "windows_compared": test and test.windows,
        "n_held_out": test and test.held_out,
        "p_value": test and test.p_value,
        "q_bh": test and test.q_value,
    }
