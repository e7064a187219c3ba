"""The rows of a user's table of scores: their parsed values, and the reasons why some rows are unusable.

The table has one row per text and detector, with these columns:

- score: a number. Required.
- label: 1 member, 0 non-member, empty unknown. Required.
- group: the book or document of the text. Without it, each text is a group.
- detector, parameters: the detector and its settings as a JSON object.
- example_id, else example_index, else id: the id of the text.
- split: calibration or evaluation.
- collection, text, sha256, published: properties of the text.

Cells are read as strings. Each distinct string is parsed once, in Python. DuckDB joins the parsed values to the rows.

The reason for skipping a row does not quote its cells. If the columns of a file are shifted, any cell may contain an
audited text. The only exception is an unknown label, which is quoted in shortened form (readers/labels.py).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import DataError
from audit_pipeline.readers import labels, text_rows
from audit_pipeline.readers.formats import open_rows
from audit_pipeline.splits import blind_controls
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.tables import canonical_json

_ROWS_PER_BATCH = 4096
_NO_NUMBER = "the score is not a number"
_MAX_SCORE = 1e100
"""A larger score counts as infinite, because its square would overflow in sums."""
_ID_COLUMNS = ("example_id", "example_index", "id")
_STRING_COLUMNS = (
    *_ID_COLUMNS,
    "label",
    "group",
    "detector",
    "split",
    "collection",
    "published",
    "text",
    "sha256",
)
_LABEL_HINT = (
    ": 1 for members, 0 for non-members, empty for unknown. `corpus-audit score` copies the column of the scored file."
)

Setting = tuple[str, str]
"""A detector and its parameters as JSON."""
_SETTING_TYPE = pa.struct({"detector": pa.string(), "parameters": pa.string()})

_HAS_UNEQUAL_COUNTS = "SELECT count(DISTINCT n) > 1 FROM (SELECT count(*) AS n FROM cells GROUP BY counted_by)"

# Without ids, the n-th row of each detector belongs to the n-th text. Without groups, the id of a text is its group.
_CREATE_ROWS = """
CREATE TABLE rows AS
WITH identified AS (
    SELECT
        * EXCLUDE (id),
        CASE $ids
            WHEN 'example_id' THEN example_id
            WHEN 'example_index' THEN example_index
            WHEN 'id' THEN cells.id
            ELSE printf('%07d', row_number() OVER (PARTITION BY counted_by ORDER BY row_index) - 1)
        END AS id
    FROM cells
)
SELECT
    row_index,
    location,
    id,
    {
        'label': labels.meaning,
        'group': if($has_groups, "group", id),
        'collection': if(collection = '', 'given', collection),
        'split': nullif(split, '')
    } AS properties,
    days.meaning AS published,
    settings.meaning AS setting,
    score,
    unscored,
    label AS label_cell,
    coalesce(
        if(id = '', 'the row has no example_id', NULL),
        labels.problem,
        if(split NOT IN ('', 'calibration', 'evaluation'), 'split is neither calibration nor evaluation', NULL),
        if($has_groups AND "group" = '', 'the row has no group', NULL),
        days.problem,
        if(unscored = $no_number, unscored, NULL),
        settings.problem
    ) AS problem
FROM identified
JOIN labels USING (label)
JOIN days USING (published)
JOIN settings USING (detector, parameters)
"""

_CREATE_USABLE = """
CREATE TABLE usable AS
SELECT
    *,
    row_number() OVER (PARTITION BY id ORDER BY row_index) AS nth_of_text,
    row_number() OVER (PARTITION BY id, setting ORDER BY row_index) AS nth_score
FROM rows
WHERE problem IS NULL
"""

# The first usable row that contradicts the first row of its text, or repeats a setting of its text.
_FIND_CONTRADICTION = """
SELECT later.location, id, later.setting.detector, later.properties, earliest.properties, earliest.location
FROM usable AS later
JOIN usable AS earliest USING (id)
WHERE earliest.nth_of_text = 1 AND (later.nth_score > 1 OR later.properties IS DISTINCT FROM earliest.properties)
ORDER BY later.row_index
LIMIT 1
"""

_SELECT_TEXTS = """
SELECT row_index, location, id AS example_id, unnest(properties), published
FROM usable
WHERE nth_of_text = 1
ORDER BY row_index
"""
_SELECT_SCORES = """
SELECT row_index, id AS example_id, unnest(setting), score, unscored FROM usable ORDER BY row_index
"""
_SELECT_UNUSABLE = """
SELECT location, row_index, problem, label_cell FROM rows WHERE problem IS NOT NULL ORDER BY row_index
"""


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """The rows of a table of scores.

    Attributes:
        texts: One row per text, with the properties from its first usable row: row_index, location, example_id, label,
            group, collection, split, published, text and sha256. A missing text or sha256 is empty.
        scores: One row per usable row, in file order: row_index, example_id, detector, parameters, score, and unscored
            (the reason for a missing score).
        settings: The distinct pairs of detector and parameters in the rows.
        has_groups: False if the file has no groups. Each text is then a group of its own.
        skipped: The unusable rows with their reasons.
        not_understood: A sentence about unknown labels, or None if all labels are known.
    """

    texts: pa.Table
    scores: pa.Table
    settings: frozenset[Setting]
    has_groups: bool
    skipped: tuple[text_rows.Skipped, ...]
    not_understood: str | None


def read_score_rows(file: Path) -> ScoreRows:
    """Read the rows of a table of scores, in a format of readers/formats.py.

    Raises:
        DataError: If the file is unreadable or lacks the columns score or label, if a detector scores a text twice, or
            if the rows of a text contradict each other.
    """
    cells, columns, unreadable = _read_cells(file)
    _check_required_columns(file, columns)
    # `corpus-audit score` writes the column even if the scored file names no group.
    has_groups = pc.any(pc.not_equal(cells["group"], "")).as_py()
    id_column = next((name for name in _ID_COLUMNS if name in columns), None)
    with open_in_memory() as connection:
        connection.register("cells", cells)
        if id_column is None and connection.sql(_HAS_UNEQUAL_COUNTS).fetchall() == [(True,)]:
            raise DataError(
                f"{file}: the detectors have different numbers of rows, so the rows of a text cannot be matched. Add a "
                "column 'example_id'."
            )
        settings = _parse_distinct_cells(cells, ["detector", "parameters"], _parse_setting, _SETTING_TYPE)
        connection.register("settings", settings)
        connection.register("labels", _parse_distinct_cells(cells, ["label"], labels.parse_label, pa.int8()))
        connection.register("days", _parse_distinct_cells(cells, ["published"], _parse_optional_day, pa.date32()))
        parameters = {"ids": id_column, "has_groups": has_groups, "no_number": _NO_NUMBER}
        connection.execute(_CREATE_ROWS, parameters)
        connection.execute(_CREATE_USABLE)
        _check_consistency(connection)
        texts = connection.sql(_SELECT_TEXTS).to_arrow_table()
        scores = connection.sql(_SELECT_SCORES).to_arrow_table()
        unusable = connection.sql(_SELECT_UNUSABLE).fetchall()
    is_first_of_text = pc.is_in(cells["row_index"], value_set=texts["row_index"].combine_chunks())
    for name in ("text", "sha256"):
        texts = texts.append_column(name, cells[name].filter(is_first_of_text))
    skipped = list(unreadable)
    unknown_labels = labels.LabelReader()
    for location, row_index, problem, label_cell in unusable:
        skipped.append(text_rows.Skipped(location, row_index, problem))
        if problem == labels.NOT_UNDERSTOOD:
            unknown_labels.count_unknown_spelling(label_cell)
    meanings = settings["meaning"].drop_null().to_pylist()
    return ScoreRows(
        texts=texts,
        scores=scores,
        settings=frozenset((meaning["detector"], meaning["parameters"]) for meaning in meanings),
        has_groups=has_groups,
        skipped=tuple(skipped),
        not_understood=unknown_labels.describe_unknown_spellings("so their rows are skipped"),
    )


def _check_required_columns(file: Path, columns: set[str]) -> None:
    for name in ("score", "label"):
        if name not in columns:
            available = ", ".join(sorted(columns)) or "no column"
            hint = _LABEL_HINT if name == "label" else ""
            raise DataError(
                f"{file}: there is no column '{name}'. The file has: {available}. Add the column '{name}'{hint or '.'}"
            )


def _read_cells(file: Path) -> tuple[pa.Table, set[str], list[text_rows.Skipped]]:
    """Read the cells of all readable rows.

    Returns:
        The cells as strings, with the score as a number; the names of the file's columns; the unreadable rows. Missing
        cells are empty strings.
    """
    batches: list[pa.RecordBatch] = []
    columns: set[str] = set()
    skipped: list[text_rows.Skipped] = []
    for entries in _iterate_batches(open_rows(file).entries()):
        rows: list[text_rows.Row] = []
        for entry in entries:
            if isinstance(entry, text_rows.Skipped):
                skipped.append(entry)
            else:
                rows.append(entry)
        columns.update(text_rows.list_columns(rows))
        try:
            batches.append(_build_cell_batch(rows))
        except UnicodeEncodeError:
            valid_rows: list[text_rows.Row] = []
            for row in rows:
                problem = _find_invalid_cell(row)
                if problem is None:
                    valid_rows.append(row)
                else:
                    skipped.append(problem)
            batches.append(_build_cell_batch(valid_rows))
    cells = pa.Table.from_batches(batches)
    if not len(cells):
        raise text_rows.build_unusable_file_error(file, text_rows.SkippedRows(len(skipped), skipped[:1]))
    return cells, columns, sorted(skipped, key=lambda row: row.index)


def _iterate_batches(
    entries: Iterator[text_rows.Row | text_rows.Skipped],
) -> Iterator[list[text_rows.Row | text_rows.Skipped]]:
    while True:
        batch = list(itertools.islice(entries, _ROWS_PER_BATCH))
        if not batch:
            return
        yield batch


def _find_invalid_cell(row: text_rows.Row) -> text_rows.Skipped | None:
    for name in (*_STRING_COLUMNS, "parameters"):
        cell = row.values.get(name)
        if isinstance(cell, str):
            problem = text_rows.explain_invalid_unicode(cell)
            if problem is not None:
                return text_rows.Skipped(row.location, row.index, f"column '{name}' {problem}")
    return None


def _build_cell_batch(rows: Sequence[text_rows.Row]) -> pa.RecordBatch:
    """Build the batch of the rows' cells.

    Raises:
        UnicodeEncodeError: If a string has a lone surrogate.
    """
    cells_by_column: dict[str, list[object]] = {}
    for name in text_rows.list_columns(rows):
        cells_by_column[name] = [row.values.get(name) for row in rows]
    strings = {name: _convert_to_strings(cells_by_column.get(name), len(rows)) for name in _STRING_COLUMNS}
    parameters = cells_by_column.get("parameters")
    # If the file has no ids, the rows of each detector are numbered. A detector is identified by its cells.
    counted_by = pc.binary_join_element_wise(strings["detector"], _convert_to_strings(parameters, len(rows)), "")
    scores: list[float | None] = []
    reasons: list[str | None] = []
    for cell in cells_by_column.get("score", [None] * len(rows)):
        score, reason = _parse_score(cell)
        scores.append(score)
        reasons.append(reason)
    columns = dict(strings)
    # Only the day is kept, without the time of day.
    columns["published"] = pc.utf8_slice_codeunits(strings["published"], 0, 10)
    columns["parameters"] = _convert_to_strings(_dump_objects(parameters), len(rows))
    columns["counted_by"] = counted_by
    columns["score"] = pa.array(scores, pa.float64())
    columns["unscored"] = pa.array(reasons, pa.string())
    columns["location"] = pa.array([row.location for row in rows], pa.string())
    columns["row_index"] = pa.array([row.index for row in rows], pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _dump_objects(cells: Sequence[object] | None) -> Sequence[object] | None:
    """Return the cells with dictionaries as JSON."""
    if cells is None:
        return None
    dumped: list[object] = []
    for cell in cells:
        dumped.append(json.dumps(cell) if isinstance(cell, dict) else cell)
    return dumped


def _convert_to_strings(cells: Sequence[object] | None, n_rows: int) -> pa.StringArray:
    """Return the cells of a column as trimmed strings. A missing column, null and NaN result in empty strings."""
    if cells is None:
        return pa.repeat("", n_rows)
    if set(map(type, cells)) <= {str, type(None)}:
        return pc.fill_null(pc.utf8_trim_whitespace(pa.array(cells, pa.string())), "")
    return pa.array(map(labels.normalize_spelling, cells), pa.string())


def _parse_score(cell: object) -> tuple[float | None, str | None]:
    """Return the score and None, or None and the reason why the score is missing.

    A score beyond the largest allowed number is infinite.
    """
    if isinstance(cell, float):
        score = cell
    else:
        spelling = labels.normalize_spelling(cell)
        if not spelling:
            return None, "the file has no score of the text"
        try:
            score = float(spelling)
        except ValueError:
            return None, _NO_NUMBER
    if math.isnan(score):
        return None, "the score is NaN"
    if abs(score) > _MAX_SCORE:
        return math.copysign(math.inf, score), None
    return score, None


def _parse_distinct_cells(
    cells: pa.Table, columns: list[str], parse: Callable[..., object], meaning_type: pa.DataType
) -> pa.Table:
    """Parse each distinct combination of cells once.

    Args:
        cells: The table of cells.
        columns: The columns to combine.
        parse: A function of the cells of these columns. It raises ValueError if they cannot be parsed.
        meaning_type: The type of the parsed values.

    Returns:
        The distinct cells, with the additional columns ``meaning`` (the parsed value) and ``problem``. One of these two
        is null.
    """
    distinct = cells.group_by(columns).aggregate([])
    meanings: list[object] = []
    problems: list[str | None] = []
    spellings = [distinct[name].to_pylist() for name in columns]
    for combination in zip(*spellings, strict=True):
        try:
            meanings.append(parse(*combination))
            problems.append(None)
        except ValueError as error:
            meanings.append(None)
            problems.append(str(error))
    with_meaning = distinct.append_column("meaning", pa.array(meanings, meaning_type))
    return with_meaning.append_column("problem", pa.array(problems, pa.string()))


def _parse_optional_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ValueError("published is not a date such as 2024-05-31") from None


def _parse_setting(detector: str, parameters_json: str) -> Mapping[str, str]:
    """Return the detector and its parameters.

    If the detector is in the registry, the parameters are in the canonical form of the registry, and missing parameters
    have their defaults. The name of any other detector includes its parameters.
    """
    name = detector or "score"
    if name == blind_controls.NAME:
        raise ValueError(f"'{name}' is the name of the blind control, so a detector cannot have this name")
    try:
        parameters = json.loads(parameters_json or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("the parameters are not a JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return {"detector": name, "parameters": REGISTRY[name].to_json(parameters)}
    if parameters:
        assignments = [f"{key}={value}" for key, value in sorted(parameters.items())]
        name = f"{name} {', '.join(assignments)}"
    return {"detector": name, "parameters": canonical_json({})}


def _check_consistency(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise DataError for a usable row that contradicts the first row of its text or repeats a setting."""
    contradictions = connection.sql(_FIND_CONTRADICTION).fetchall()
    if not contradictions:
        return
    location, text_id, detector, properties, earliest, earliest_location = contradictions[0]
    for name, value in properties.items():
        if value != earliest[name]:
            raise DataError(
                f"{location}: the {name} of the text {text_id} is {value!r}, but at {earliest_location} it is "
                f"{earliest[name]!r}. Correct one of the rows."
            )
    raise DataError(f"{location}: {detector} scores the text {text_id} a second time. Delete one of the rows.")
