"""The results of a search as tables: the stored tables of a benchmark and model, and the file that a user requests.

The test of a document compares its most likely window with those of held-out documents. The windows of one document are
not independent, so a document has one statistic. The maximum of many windows is higher than that of few windows.
Therefore each document of a comparison contributes the same number of windows, evenly spread over the document. For an
audited document of n windows, this number is c = min(n, q). q is the number of windows that most held-out documents
have. Only coarse windows count, because fine windows are run only near likely coarse windows.
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
from audit_pipeline.extras.extraction import ANSWERS, settings_grid
from audit_pipeline.extras.extraction.documents import Quotation
from audit_pipeline.extras.extraction.memorisation import THRESHOLDS
from audit_pipeline.extras.extraction.search import Extraction
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
"""The columns with the share of a document that is covered by likely suffixes, in the order of ``THRESHOLDS``."""
HELD_OUT_TEST = ("windows_compared", "n_held_out", "p_value", "q_bh")
"""The columns of a document's test against the held-out documents."""
Test = Mapping[str, float | None]
"""A document's test by column of ``HELD_OUT_TEST``. All values are None if the document has no test."""


def compare_log_p_with_held_out(audited: Sequence[Floats], held_out: Sequence[Floats]) -> list[Test]:
    """Test each document against the held-out documents.

    A p-value is valid if a document that the model has not read is exchangeable with the held-out documents. q-values
    are those of Benjamini and Hochberg over the documents.

    Args:
        audited: For each audited document, the log-probabilities of its coarse windows in order. Windows that are set
            apart have minus infinity.
        held_out: The same for each held-out document.

    Returns:
        One test per audited document: the number of compared windows per document, the number of held-out documents,
        the p-value and the q-value. These are None for a document without windows. They are None for all documents if
        no held-out document has a window.
    """
    return _add_q_values(_compute_p_values(audited, held_out))


def _compute_p_values(audited: Sequence[Floats], held_out: Sequence[Floats]) -> list[tuple[int, int, float] | None]:
    """Return the first three columns of each audited document's test, or None if the document has no test."""
    tests: list[tuple[int, int, float] | None] = [None] * len(audited)
    with_windows = [values for values in held_out if len(values)]
    if not with_windows:
        return tests
    max_windows = choose_texts_per_group([len(values) for values in with_windows])
    for number, values in enumerate(audited):
        if not len(values):
            continue
        count = min(len(values), max_windows)
        references = [_find_strongest_log_p(log_p, count) for log_p in with_windows if len(log_p) >= count]
        [p_value] = compute_conformal_p_values([_find_strongest_log_p(values, count)], references)
        tests[number] = (count, len(references), float(p_value))
    return tests


def _add_q_values(tests: Sequence[tuple[int, int, float] | None]) -> list[Test]:
    tested = [test for test in tests if test is not None]
    adjusted = iter(compute_q_values([p_value for _, _, p_value in tested], "bh").tolist())
    with_q_values: list[Test] = []
    for test in tests:
        if test is None:
            with_q_values.append(dict.fromkeys(HELD_OUT_TEST))
        else:
            with_q_values.append(dict(zip(HELD_OUT_TEST, (*test, next(adjusted)), strict=True)))
    return with_q_values


def _find_strongest_log_p(values: Floats, count: int) -> float:
    """Return the highest log-probability among ``count`` windows, evenly spread over the document."""
    return float(values[np.linspace(0, len(values) - 1, count).round().astype(int)].max())


RULES: tuple[float | None, ...] = (*THRESHOLDS, None)
"""The rules by which a suffix counts as reproduced: a minimum probability, or None for first choices only."""


def compute_extraction_rates(extractions: Sequence[Extraction], benchmark: str) -> list[dict[str, Any]]:
    """Compute the extraction rates of each group, collection and number of occurrences, and of the whole benchmark.

    Audited and held-out documents have separate rates. The interval of the share of characters uses an effective sample
    size with one group per document, so a single document has no interval. The interval of the share of documents is
    that of Clopper and Pearson. Documents without windows are left out. The rates of first choices are missing if a
    model's first choices are unknown.

    The answers of one conversation are not independent. They are one group, and the number of documents is then that of
    conversations. A conversation is reached if one of its answers is.

    Returns:
        Rows of EXTRACTION_RATES without the columns model, benchmark and run_id.
    """
    units: dict[tuple[str, str, Side], list[Extraction]] = {}
    for extraction in extractions:
        if not len(extraction.windows):
            continue
        document = extraction.document
        names = {"group": document.group, "collection": document.collection, "benchmark": benchmark}
        if document.occurrences is not None:
            names["occurrences"] = str(document.occurrences)
        for unit, name in names.items():
            units.setdefault((unit, name, document.side), []).append(extraction)
    rows = []
    for unit, name, side in sorted(units):
        for rate in _compute_unit_rates(units[unit, name, side]):
            rows.append({"unit": unit, "name": name, "side": side, **rate})
    return rows


def _compute_unit_rates(extractions: Sequence[Extraction]) -> Iterator[dict[str, Any]]:
    """Yield the rates of a group of documents by each rule."""
    memorisations = [extraction.memorisation for extraction in extractions]
    characters = np.array([memorisation.characters for memorisation in memorisations], dtype=np.float64)
    rules: Sequence[float | None] = RULES
    if any(memorisation.greedy is None for memorisation in memorisations):
        rules = THRESHOLDS
    # If first choices are unknown, the last column is not read.
    shares = np.array([[*memorisation.covered, memorisation.greedy or 0.0] for memorisation in memorisations])
    documents = _number_independent_documents(extractions)
    n_documents = len({*documents})
    strongest = [-math.inf] * n_documents
    for document, extraction in zip(documents, extractions, strict=True):
        log_p = extraction.strongest_log_p
        if log_p is not None:
            strongest[document] = max(log_p, strongest[document])
    median = float(np.median(strongest))
    median_log_p = None
    if math.isfinite(median):
        median_log_p = median
    for number, threshold in enumerate(rules):
        rule = "probability"
        if threshold is None:
            rule = "first_choices"
        reached: set[int] = set()
        for document, extraction in zip(documents, extractions, strict=True):
            if _has_reached(extraction, threshold):
                reached.add(document)
        n_reached = len(reached)
        reached_low, reached_high = compute_clopper_pearson_bounds(n_reached, n_documents)
        covered = estimate_grouped_rate(shares[:, number], np.array(documents), characters)
        yield {
            "threshold": threshold,
            "rule": rule,
            "n_documents": n_documents,
            "characters": int(characters.sum()),
            "covered": covered.value or 0.0,
            "covered_low": covered.interval.low,
            "covered_high": covered.interval.high,
            "n_reached": n_reached,
            "reached": n_reached / n_documents,
            "reached_low": float(reached_low),
            "reached_high": float(reached_high),
            "median_log_p": median_log_p,
        }


def _number_independent_documents(extractions: Sequence[Extraction]) -> list[int]:
    """Return a number from 0 for each extraction. The answers of one conversation have the same number."""
    numbers: dict[object, int] = {}
    documents = []
    for position, extraction in enumerate(extractions):
        unit: object = position
        if extraction.document.answer is not None:
            unit = extraction.document.answer.conversation_id
        documents.append(numbers.setdefault(unit, len(numbers)))
    return documents


def _has_reached(extraction: Extraction, threshold: float | None) -> bool:
    mask = extraction.windows.reproduced_greedily
    if threshold is not None:
        mask = extraction.windows.log_p_top >= math.log(threshold)
    return bool((mask & ~extraction.exclusions.is_set_apart).any())


_RUN_COLUMNS = ("model", "benchmark", "run_id")
_NEAR = "log_p_near_verbatim"
_QUOTED = ("prefix_excerpt", "suffix_pieces", "first_choice_pieces")
_GENERATED = ("given_text", "suffix_words", "words_in_common")
_GRID_SUMMARY = ("grid_settings", "grid_p_value", "grid_q_bh")


@dataclass(frozen=True)
class Passages:
    """The quotations and generated texts of a document's passages.

    Attributes:
        quotes: The quotation of each passage, by the number of its window.
        generated: The columns of the model's continuation of each passage's prefix, by the number of its window.
        near_log_p: The lower bound of the log-probability of nearly reproducing the strongest passage, in nats. None if
            it was not computed.
    """

    quotes: Mapping[int, Quotation] = field(default_factory=dict)
    generated: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    near_log_p: float | None = None


def build_extraction_tables(
    extractions: Sequence[Extraction],
    passages: Sequence[Passages],
    grid: settings_grid.GridFindings | None,
    pair: Pair,
    settings: ExtractionSettings,
    run_id: str,
    no_window_reason: str,
) -> dict[Table, pa.Table]:
    """Build the tables of a benchmark and model.

    Args:
        extractions: The results of each document.
        passages: The passages of each document.
        grid: The results of the grid, or None if no grid was run.
        pair: The benchmark and model.
        settings: The settings of the search.
        run_id: The id of the run.
        no_window_reason: The reason that is stored for documents without windows.

    Returns:
        The tables in the order of writing. DOCUMENT_MEMORISATION is last, so its rows show that all tables are written.
    """
    run_columns = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}

    def build_table(rows: Sequence[Mapping[str, Any]], table: Table) -> pa.Table:
        return table_from_rows([{**run_columns, **row} for row in rows], table)

    windows = _concatenate_windows(extractions, passages)
    for name, value in run_columns.items():
        windows = windows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(windows)))
    grid_rows: list[dict[str, object]] = []
    if grid is not None:
        grid_rows = build_grid_rows(extractions, grid)
    documents = []
    document_rows = build_document_rows(extractions, settings, no_window_reason)
    for row, grid_summary in zip(document_rows, summarise_grid(extractions, grid), strict=True):
        documents.append({**row, **grid_summary})
    return {
        EXTRACTION_GRID: build_table(grid_rows, EXTRACTION_GRID),
        EXTRACTION_WINDOWS: cast_to_columns(windows.select(EXTRACTION_WINDOWS.names), EXTRACTION_WINDOWS),
        EXTRACTION_RATES: build_table(compute_extraction_rates(extractions, pair.benchmark), EXTRACTION_RATES),
        DOCUMENT_MEMORISATION: build_table(documents, DOCUMENT_MEMORISATION),
    }


def compare_extractions_with_held_out(extractions: Sequence[Extraction]) -> list[Test]:
    """Test each audited document against the held-out documents. Held-out documents have no test.

    The answers of one conversation are not independent. Therefore an answer is compared with one answer of each
    held-out conversation: the answer with the same number.
    """
    numbers_by_position: dict[int | None, list[int]] = {}
    for number, extraction in enumerate(extractions):
        answer = extraction.document.answer
        position = None if answer is None else answer.number
        numbers_by_position.setdefault(position, []).append(number)
    p_values: list[tuple[int, int, float] | None] = [None] * len(extractions)
    for numbers in numbers_by_position.values():
        audited = [number for number in numbers if extractions[number].document.side == "audited"]
        held_out = [number for number in numbers if extractions[number].document.side == "held_out"]
        audited_log_p = [extractions[number].compared_log_p for number in audited]
        held_out_log_p = [extractions[number].compared_log_p for number in held_out]
        for number, p_value in zip(audited, _compute_p_values(audited_log_p, held_out_log_p), strict=True):
            p_values[number] = p_value
    return _add_q_values(p_values)


def build_grid_rows(extractions: Sequence[Extraction], findings: settings_grid.GridFindings) -> list[dict[str, object]]:
    """Build the rows of EXTRACTION_GRID for each document and setting, without the columns of pair and run."""
    rows = []
    for extraction, document_grid in zip(extractions, findings.documents, strict=True):
        document = {"document_id": extraction.document.name, "side": extraction.document.side}
        rows += [{**document, **row} for row in settings_grid.iterate_grid_rows(document_grid, findings.grid)]
    return rows


def summarise_grid(
    extractions: Sequence[Extraction], findings: settings_grid.GridFindings | None
) -> list[Mapping[str, object]]:
    """Return the columns of DOCUMENT_MEMORISATION that summarise the grid, for each document."""
    if findings is None:
        return [dict.fromkeys(_GRID_SUMMARY)] * len(extractions)
    by_side: dict[Side, list[settings_grid.DocumentGrid]] = {"audited": [], "held_out": []}
    for extraction, document_grid in zip(extractions, findings.documents, strict=True):
        by_side[extraction.document.side].append(document_grid)
    p_values = dict(zip(by_side["audited"], settings_grid.compute_grid_p_values(**by_side), strict=True))
    tested = {document_grid: p_value for document_grid, p_value in p_values.items() if p_value is not None}
    adjusted = dict(zip(tested, compute_q_values(list(tested.values()), "bh").tolist(), strict=True))
    summaries: list[Mapping[str, object]] = []
    for document_grid in findings.documents:
        n_settings = sum(map(len, document_grid.log_p.values()))
        values = (n_settings, p_values.get(document_grid), adjusted.get(document_grid))
        summaries.append(dict(zip(_GRID_SUMMARY, values, strict=True)))
    return summaries


def write_windows(out: Path, extractions: Sequence[Extraction]) -> None:
    """Write the windows of all documents to a file, without quotations and generated texts.

    The file has the other columns of EXTRACTION_WINDOWS. It is written completely or not at all.
    """
    table = _concatenate_windows(extractions, [Passages()] * len(extractions))
    write_table(out, table.drop_columns([*_QUOTED, *_GENERATED, _NEAR]))


_WINDOWS = pa.schema([field for field in EXTRACTION_WINDOWS.schema if field.name not in _RUN_COLUMNS])


def _concatenate_windows(extractions: Sequence[Extraction], passages: Sequence[Passages]) -> pa.Table:
    """Return the windows of all documents in one table, without the columns model, benchmark and run_id."""
    tables = [_WINDOWS.empty_table()]
    for extraction, document_passages in zip(extractions, passages, strict=True):
        tables.append(_build_windows_table(extraction, document_passages))
    return pa.concat_tables(tables)


def _build_windows_table(extraction: Extraction, passages: Passages) -> pa.Table:
    document = extraction.document
    windows = extraction.windows
    exclusions = extraction.exclusions
    unknown: list[None] = [None] * len(windows)
    columns: dict[str, Any] = {
        "document_id": [document.name] * len(windows),
        "start": windows.start,
        "suffix_begin": windows.begin,
        "suffix_end": windows.end,
        "tokens": windows.tokens,
        "log_p": windows.log_p,
        "log_p_top_40": np.where(windows.top_is_known & np.isfinite(windows.log_p_top), windows.log_p_top, np.nan),
        "outside_top_40": windows.outside,
        "first_choices": windows.matches,
        "is_coarse": extraction.is_coarse,
        "set_apart": exclusions.reasons,
        "reference_log_p": exclusions.reference_log_p,
        "prior_log_p": exclusions.prior_log_p,
        "place": list(unknown),
        "strength": list(unknown),
        _NEAR: list(unknown),
        "prefix_excerpt": list(unknown),
        "suffix_pieces": [()] * len(windows),
        "first_choice_pieces": [()] * len(windows),
    }
    for name in ("outside_top_40", "first_choices"):
        if columns[name] is None:
            columns[name] = unknown
    for strength, number in enumerate(extraction.memorisation.strongest, 1):
        columns["strength"][number] = strength
        # An answer has no place, because its text is that of the chat template and not that of a file.
        if document.answer is None:
            columns["place"][number] = describe_place(document.text, int(windows.begin[number]), document.places)
        if strength == 1 and passages.near_log_p != -math.inf:
            columns[_NEAR][number] = passages.near_log_p
    for number, quotation in passages.quotes.items():
        columns["prefix_excerpt"][number] = quotation.prefix
        columns["suffix_pieces"][number] = quotation.pieces
        columns["first_choice_pieces"][number] = quotation.first_choices
    for name in _GENERATED:
        columns[name] = [passages.generated.get(number, {}).get(name) for number in range(len(windows))]
    # With from_pandas, NaN becomes null.
    arrays = [pa.array(columns[field.name], field.type, from_pandas=True) for field in _WINDOWS]
    return pa.Table.from_arrays(arrays, schema=_WINDOWS)


def build_document_rows(
    extractions: Sequence[Extraction], settings: ExtractionSettings, no_window: str
) -> list[Mapping[str, Any]]:
    """Build the rows of DOCUMENT_MEMORISATION, without the columns of pair, run and grid.

    Args:
        extractions: The results of each document.
        settings: The settings of the search.
        no_window: The reason that is stored for documents without windows.
    """
    rows: list[Mapping[str, Any]] = []
    for extraction, test in zip(extractions, compare_extractions_with_held_out(extractions), strict=True):
        document = extraction.document
        memorisation = extraction.memorisation
        reasons = extraction.exclusions.reasons
        no_window_reason = None
        shares: dict[str, Any] = {
            **dict(zip(COVERED_COLUMNS, memorisation.covered, strict=True)),
            "covered_by_first_choices": memorisation.greedy,
            "covered_set_apart": memorisation.covered_set_apart,
            "claim": find_extraction_claim(memorisation.reproduced),
        }
        if not memorisation.windows:
            no_window_reason = extraction.problem or no_window
            shares = dict.fromkeys(shares)
        prefix_tokens = settings.prefix
        stride = settings.stride
        if document.answer is not None:
            prefix_tokens = settings_grid.FROM_BEGINNING
            stride = ANSWERS
        rows.append(
            {
                "document_id": document.name,
                "title": document.title,
                "group": document.group,
                "collection": document.collection,
                "side": document.side,
                "occurrences": document.occurrences,
                "characters": memorisation.characters,
                "prefix_tokens": prefix_tokens,
                "suffix_tokens": settings.suffix,
                "stride": stride,
                "windows": memorisation.windows,
                "reason": no_window_reason,
                "reproduced": memorisation.reproduced,
                "set_apart": memorisation.set_apart,
                "predictable": reasons.count("predictable"),
                "likely_anyway": reasons.count("likely anyway"),
                **shares,
                "longest_run": memorisation.longest_run,
                "longest_run_words": memorisation.longest_run_words,
                "log_p": extraction.strongest_log_p,
                **test,
            }
        )
    return rows
