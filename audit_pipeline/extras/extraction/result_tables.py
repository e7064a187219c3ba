"""What was found of documents, one by one and together, as the tables that are kept and the one written for users.

Is the strongest window of a document stronger than those of held-out documents? Windows of one document are not
independent, so a document has one statistic, its strongest window. The strongest of many is stronger than that of few,
so both sides take equally many: c = min(n, q) windows of a document of n, where q is what most held-out documents have,
spread evenly over the document. Only the coarse windows count: fine ones are where coarse ones are strong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from audit_pipeline.benchmarks.settings import ExtractionSettings
from audit_pipeline.extras.extraction.documents import Quotation
from audit_pipeline.extras.extraction.memorisation import THRESHOLDS
from audit_pipeline.extras.extraction.search import Extraction
from audit_pipeline.extras.extraction.settings_grid import (
    DocumentGrid,
    GridFindings,
    compute_grid_p_values,
    iterate_grid_rows,
)
from audit_pipeline.readers.whole_files.document import describe_place
from audit_pipeline.statistics.claims import find_extraction_claim
from audit_pipeline.statistics.conformal import choose_texts_per_group, compute_conformal_p_values, compute_q_values
from audit_pipeline.statistics.roc import Floats
from audit_pipeline.statistics.share_bounds import compute_clopper_pearson_bounds, estimate_grouped_rate
from audit_pipeline.store.files import cast_to_columns, table_from_rows, write_table
from audit_pipeline.tables import (
    DOCUMENT_MEMORISATION,
    EXTRACTION_GRID,
    EXTRACTION_RATES,
    EXTRACTION_WINDOWS,
    Pair,
    Side,
    Table,
)

COVERED_COLUMNS = tuple(f"covered_at_{str(threshold).replace('.', '_')}" for threshold in THRESHOLDS)
"""The columns of the shares of a document, by ``THRESHOLDS``."""
HELD_OUT_TEST = ("windows_compared", "n_held_out", "p_value", "q_bh")
"""The columns of a document's test against the held-out ones."""
Test = Mapping[str, float | None]
"""A document's test, by ``HELD_OUT_TEST``; None where it has none."""


def compare_each_with_held_out(audited: Sequence[Floats], held_out: Sequence[Floats]) -> list[Test]:
    """Each document's test: how many windows were compared with how many documents, its p- and its q-value.

    audited, held_out: for each document the log-probabilities of its coarse windows, in their order, minus infinity for
    those that are set apart. A document without a window has no test, and none has one where no held-out document has a
    window. The p-value holds where a document that the model has not read is exchangeable with the held-out ones.
    q-values are Benjamini-Hochberg's over the documents.
    """
    known = [values for values in held_out if len(values)]
    most = choose_texts_per_group([len(values) for values in known]) if known else 0
    tested: dict[int, tuple[int, int, float]] = {}
    for number, values in enumerate(audited if known else ()):
        if len(values):
            count = min(len(values), most)
            against = [_find_strongest_log_p(log_p, count) for log_p in known if len(log_p) >= count]
            [p_value] = compute_conformal_p_values([_find_strongest_log_p(values, count)], against)
            tested[number] = count, len(against), float(p_value)
    q = dict(zip(tested, compute_q_values([p for _, _, p in tested.values()], "bh").tolist(), strict=True))
    return [
        dict(zip(HELD_OUT_TEST, (*tested.get(number, (None,) * 3), q.get(number)), strict=True))
        for number in range(len(audited))
    ]


def _find_strongest_log_p(values: Floats, count: int) -> float:
    """The strongest of ``count`` windows, spread evenly over the document."""
    return float(values[np.linspace(0, len(values) - 1, count).round().astype(int)].max())


RULES: tuple[float | None, ...] = (*THRESHOLDS, None)
"""Which suffixes count: those of at least this probability; None: those of first choices alone."""


def compute_extraction_rates(extractions: Sequence[Extraction], benchmark: str) -> list[dict[str, Any]]:
    """The rates of every group, collection and number of occurrences, and of all together, each side by itself, as
    EXTRACTION_RATES has them but for model, benchmark and run_id.

    The share of characters has the interval of an effective size, each document being a group: none for one document.
    The share of documents has Clopper and Pearson's. Documents without a window are in none. Where the model's first
    choices are unknown there is no rate of them.
    """
    units: dict[tuple[str, str, Side], list[Extraction]] = {}
    for extraction in extractions:
        document = extraction.document
        names = {"group": document.group, "collection": document.collection, "benchmark": benchmark}
        if document.occurrences is not None:
            names["occurrences"] = str(document.occurrences)
        for unit, name in names.items() if len(extraction.windows) else ():
            units.setdefault((unit, name, document.side), []).append(extraction)
    return [
        {"unit": unit, "name": name, "side": side, **rate}
        for (unit, name, side), documents in sorted(units.items(), key=lambda item: item[0])
        for rate in _compute_unit_rates(documents)
    ]


def _compute_unit_rates(extractions: Sequence[Extraction]) -> Iterator[dict[str, Any]]:
    characters = np.array([extraction.memorisation.characters for extraction in extractions], dtype=np.float64)
    rules = [
        rule
        for rule in RULES
        if rule is not None or all(extraction.memorisation.greedy is not None for extraction in extractions)
    ]
    # Where no rule of first choices is counted, the 0.0 in their place is not read.
    found = [extraction.memorisation for extraction in extractions]
    shares = np.array([[*memorisation.covered, memorisation.greedy or 0.0] for memorisation in found])
    n_documents = len(extractions)
    documents = np.arange(n_documents)
    strongest = (extraction.strongest_log_p for extraction in extractions)
    median = float(np.median([-np.inf if log_p is None else log_p for log_p in strongest]))
    for number, threshold in enumerate(rules):
        n_reached = sum(_has_reached(extraction, threshold) for extraction in extractions)
        low, high = compute_clopper_pearson_bounds(n_reached, n_documents)
        covered = estimate_grouped_rate(shares[:, number], documents, characters)
        yield {
            **{"threshold": threshold, "rule": "first_choices" if threshold is None else "probability"},
            **{"n_documents": n_documents, "characters": int(characters.sum()), "covered": covered.value or 0.0},
            **{"covered_low": covered.interval.low, "covered_high": covered.interval.high},
            **{"n_reached": n_reached, "reached": n_reached / n_documents},
            **{"reached_low": float(low), "reached_high": float(high)},
            "median_log_p": median if math.isfinite(median) else None,
        }


def _has_reached(extraction: Extraction, threshold: float | None) -> bool:
    windows = extraction.windows
    which = windows.reproduced_greedily if threshold is None else windows.log_p_top >= math.log(threshold)
    return bool((which & ~extraction.judged.is_set_apart).any())


_OF_RUN = ("model", "benchmark", "run_id")
_NEAR = "log_p_near_verbatim"
_QUOTED = ("prefix_excerpt", "suffix_pieces", "first_choice_pieces")
_OF_GIVEN = ("given_text", "suffix_words", "words_in_common")


@dataclass(frozen=True)
class Passages:
    """What is kept of a document's passages besides their probability, by the number of their window: their words, and
    what the model gives in their place. ``near_log_p``: how likely it gives the strongest nearly word for word; None:
    not asked for.
    """

    quotes: Mapping[int, Quotation] = field(default_factory=dict)
    given: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    near_log_p: float | None = None


def build_extraction_tables(
    extractions: Sequence[Extraction],
    passages: Sequence[Passages],
    grid: GridFindings | None,
    pair: Pair,
    settings: ExtractionSettings,
    run_id: str,
    no_window_reason: str,
) -> dict[Table, pa.Table]:
    """Every table of what was found of a pair's documents; ``no_window`` says why a document has no window."""
    of_run = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    windows = pa.concat_tables(
        [
            _build_windows_table(extraction, of_document)
            for extraction, of_document in zip(extractions, passages, strict=True)
        ]
        or [_WINDOWS.empty_table()]
    )
    for name, value in of_run.items():
        windows = windows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(windows)))
    rates = [{**of_run, **rate} for rate in compute_extraction_rates(extractions, pair.benchmark)]
    documents = [
        {**of_run, **row, **of_grid}
        for row, of_grid in zip(
            build_document_rows(extractions, settings, no_window_reason), summarise_grid(extractions, grid), strict=True
        )
    ]
    return {
        EXTRACTION_GRID: table_from_rows(
            [{**of_run, **row} for row in build_grid_rows(extractions, grid)] if grid is not None else [],
            EXTRACTION_GRID,
        ),
        EXTRACTION_WINDOWS: cast_to_columns(windows.select(EXTRACTION_WINDOWS.names), EXTRACTION_WINDOWS),
        EXTRACTION_RATES: table_from_rows(rates, EXTRACTION_RATES),
        # Last: where it is, the others are.
        DOCUMENT_MEMORISATION: table_from_rows(documents, DOCUMENT_MEMORISATION),
    }


def compare_with_held_out(extractions: Sequence[Extraction]) -> list[Test]:
    """The test of each audited document against the held-out ones, which have none."""
    held_out = [extraction.compared for extraction in extractions if extraction.document.side == "held_out"]
    audited = [extraction.compared for extraction in extractions if extraction.document.side == "audited"]
    tests = iter(compare_each_with_held_out(audited, held_out))
    untested = dict.fromkeys(HELD_OUT_TEST)
    return [next(tests) if extraction.document.side == "audited" else untested for extraction in extractions]


def build_grid_rows(extractions: Sequence[Extraction], findings: GridFindings) -> list[dict[str, object]]:
    """What the grid shows of each document at each setting, as EXTRACTION_GRID has it, but for pair and run."""
    return [
        {"document_id": extraction.document.name, "side": extraction.document.side, **row}
        for extraction, own in zip(extractions, findings.documents, strict=True)
        for row in iterate_grid_rows(own, findings.grid)
    ]


def summarise_grid(extractions: Sequence[Extraction], findings: GridFindings | None) -> list[Mapping[str, object]]:
    """What the grid shows of each document as a whole, as DOCUMENT_MEMORISATION has it."""
    if findings is None:
        return [dict.fromkeys(("grid_settings", "grid_p_value", "grid_q_bh"))] * len(extractions)
    by_side: dict[Side, list[DocumentGrid]] = {"audited": [], "held_out": []}
    for extraction, own in zip(extractions, findings.documents, strict=True):
        by_side[extraction.document.side].append(own)
    p_values = dict(zip(by_side["audited"], compute_grid_p_values(**by_side), strict=True))
    tested = {own: p_value for own, p_value in p_values.items() if p_value is not None}
    q = dict(zip(tested, compute_q_values(list(tested.values()), "bh").tolist(), strict=True))
    return [
        {
            "grid_settings": sum(map(len, own.log_p.values())),
            "grid_p_value": p_values.get(own),
            "grid_q_bh": q.get(own),
        }
        for own in findings.documents
    ]


def write_windows(out: Path, extractions: Sequence[Extraction]) -> None:
    """Write the windows of all documents to ``out``, whole or not at all, as EXTRACTION_WINDOWS without quotations and
    what the model gives, near or not.
    """
    table = pa.concat_tables(
        [_build_windows_table(extraction, Passages()) for extraction in extractions] or [_WINDOWS.empty_table()]
    ).drop_columns([*_QUOTED, *_OF_GIVEN, _NEAR])
    write_table(out, table)


_WINDOWS = pa.schema([field for field in EXTRACTION_WINDOWS.schema if field.name not in _OF_RUN])


def _build_windows_table(extraction: Extraction, passages: Passages) -> pa.Table:
    windows, judged = extraction.windows, extraction.judged
    strength = {number: place for place, number in enumerate(extraction.memorisation.strongest, 1)}
    document, numbers = extraction.document, range(len(windows))
    quotes, near_log_p = passages.quotes, passages.near_log_p
    unknown = [None] * len(windows)
    columns = {
        "document_id": [document.name] * len(windows),
        **{"start": windows.start, "suffix_begin": windows.begin, "suffix_end": windows.end, "tokens": windows.tokens},
        "log_p": windows.log_p,
        "log_p_top_40": np.where(windows.top_is_known & np.isfinite(windows.log_p_top), windows.log_p_top, np.nan),
        "outside_top_40": unknown if windows.outside is None else windows.outside,
        "first_choices": unknown if windows.matches is None else windows.matches,
        "is_coarse": extraction.is_coarse,
        **{"set_apart": judged.reasons, "reference_log_p": judged.reference_log_p, "prior_log_p": judged.prior_log_p},
        "place": [
            describe_place(document.text, int(windows.begin[number]), document.places) if number in strength else None
            for number in numbers
        ],
        "strength": [strength.get(number) for number in numbers],
        _NEAR: [near_log_p if strength.get(number) == 1 and near_log_p != -math.inf else None for number in numbers],
        "prefix_excerpt": [quotes[number].prefix if number in quotes else None for number in numbers],
        "suffix_pieces": [quotes[number].pieces if number in quotes else () for number in numbers],
        "first_choice_pieces": [quotes[number].first_choices if number in quotes else () for number in numbers],
        **{name: [passages.given.get(number, {}).get(name) for number in numbers] for name in _OF_GIVEN},
    }
    # From pandas: NaN is null.
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in _WINDOWS]
    return pa.Table.from_arrays(arrays, schema=_WINDOWS)


def build_document_rows(
    extractions: Sequence[Extraction], settings: ExtractionSettings, no_window: str
) -> list[Mapping[str, Any]]:
    """What was found of each document, as DOCUMENT_MEMORISATION has it, but for pair, run and grid."""
    rows: list[Mapping[str, Any]] = []
    for extraction, test in zip(extractions, compare_with_held_out(extractions), strict=True):
        document, found, reasons = extraction.document, extraction.memorisation, extraction.judged.reasons
        of_windows: dict[str, Any] = {
            **dict(zip(COVERED_COLUMNS, found.covered, strict=True)),
            **{"covered_by_first_choices": found.greedy, "covered_set_apart": found.covered_set_apart},
            "claim": find_extraction_claim(found.reproduced),
        }
        rows.append(
            {
                "document_id": document.name,
                **{"title": document.title, "group": document.group, "collection": document.collection},
                **{"side": document.side, "occurrences": document.occurrences, "characters": found.characters},
                **{"prefix_tokens": settings.prefix, "suffix_tokens": settings.suffix, "stride": settings.stride},
                **{"windows": found.windows, "reason": None if found.windows else no_window},
                **{"reproduced": found.reproduced, "set_apart": found.set_apart},
                **{"predictable": reasons.count("predictable"), "likely_anyway": reasons.count("likely anyway")},
                **(of_windows if found.windows else dict.fromkeys(of_windows)),
                **{"longest_run": found.longest_run, "longest_run_words": found.longest_run_words},
                "log_p": extraction.strongest_log_p,
                **test,
            }
        )
    return rows
