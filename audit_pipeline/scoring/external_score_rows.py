"""The rows of a table of scores that a user hands over: what each says, and why some cannot be used.

Every cell is read as a string. What a string means is found out once for each distinct one, in Python; what follows for
the rows is asked of DuckDB.

What is said of a row that cannot be used never quotes it: with shifted columns any cell may hold a text. Only labels
that are not understood are reported as they are spelt, cut (readers/labels.py).

One row per text and detector. Columns: ``score``; ``label`` (1 member, 0 non-member, empty: unknown); and where there
are some, ``group`` (the book or document that a text is of; without it every text is a group), ``detector``,
``parameters``, ``example_id`` (else ``example_index``, else ``id``), ``split`` (calibration | evaluation),
``collection``, ``text``, ``published``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import open_rows
from audit_pipeline.readers.labels import NOT_UNDERSTOOD, LabelReader, label_to_spelling, parse_label
from audit_pipeline.readers.text_rows import (
    Row,
    Skipped,
    SkippedRows,
    build_unusable_file_error,
    column_names,
    explain_invalid_unicode,
)
from audit_pipeline.splits import blind_controls
from audit_pipeline.store.duckdb_connections import open_in_memory
from audit_pipeline.tables import canonical_json

_ROWS_AT_ONCE = 4096
_NO_NUMBER = "score is no number"
_LARGEST = 1e100
"""Beyond it sums of squares are no numbers any more: such a score is taken as infinite."""
_IDS = ("example_id", "example_index", "id")
_STRINGS = (*_IDS, "label", "group", "detector", "split", "collection", "published", "text", "sha256")
_WAY = (
    ". Add it: 1 member, 0 non-member, empty unknown. `corpus-audit score` keeps the column label of the file that it "
    "scores"
)

Setting = tuple[str, str]
"""A detector and its parameters."""
_SETTING = pa.struct({"detector": pa.string(), "parameters": pa.string()})

_COUNTS_DIFFER = "SELECT count(DISTINCT n) > 1 FROM (SELECT count(*) AS n FROM cells GROUP BY counted_by)"

# Without ids, the n-th row of each detector is of the n-th text; without groups, every text is a group by its id.
_ROWS = """
CREATE TABLE rows AS
WITH identified AS (
    SELECT
        * EXCLUDE (id),
        CASE $ids
            WHEN 'example_id' THEN example_id
            WHEN 'example_index' THEN example_index
            WHEN 'id' THEN cells.id
            ELSE printf('%07d', row_number() OVER (PARTITION BY counted_by ORDER BY place) - 1)
        END AS id
    FROM cells
)
SELECT
    place,
    location,
    id,
    {
        'label': labels.meaning,
        'group': if($has_groups, "group", id),
        'collection': if(collection = '', 'given', collection),
        'split': nullif(split, '')
    } AS said,
    days.meaning AS published,
    settings.meaning AS setting,
    score,
    unscored,
    label AS spelt_label,
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

_USABLE = """
CREATE TABLE usable AS
SELECT
    *,
    row_number() OVER (PARTITION BY id ORDER BY place) AS nth_of_text,
    row_number() OVER (PARTITION BY id, setting ORDER BY place) AS nth_score
FROM rows
WHERE problem IS NULL
"""

_FIRST_CONTRADICTION = """
SELECT later.location, id, later.setting.detector, later.said, first.said, first.location
FROM usable AS later
JOIN usable AS first USING (id)
WHERE first.nth_of_text = 1 AND (later.nth_score > 1 OR later.said IS DISTINCT FROM first.said)
ORDER BY later.place
LIMIT 1
"""

_TEXTS = """
SELECT place, location, id AS example_id, unnest(said), published FROM usable WHERE nth_of_text = 1 ORDER BY place
"""
_SCORES = "SELECT place, id AS example_id, unnest(setting), score, unscored FROM usable ORDER BY place"
_UNUSABLE = "SELECT location, place, problem, spelt_label FROM rows WHERE problem IS NOT NULL ORDER BY place"


@dataclass(frozen=True, eq=False)
class GivenRows:
    """What the usable rows of a file say, and which rows are not usable.

    ``texts``, in the order in which usable rows meet them, says of each what its first usable row says: example_id,
    label, group, collection, split, published, location, text and sha256 (empty where there is none). ``scores`` has
    every usable row in its order: example_id, detector, parameters, score, and under unscored why there is none. Both
    have the place of the row in the file.

    ``settings`` are those of all rows. Without ``has_groups`` every text is a group by its id. ``not_understood`` says
    of labels that nobody can understand.
    """

    texts: pa.Table
    scores: pa.Table
    settings: frozenset[Setting]
    has_groups: bool
    skipped: tuple[Skipped, ...]
    not_understood: str | None


def read_given_rows(file: Path) -> GivenRows:
    """The rows of ``file`` (of a format of readers/formats.py).

    Raises DataError for a file that cannot be read or lacks the columns score and label, for a text that is scored
    twice by a detector, and where rows of one text contradict each other.
    """
    cells, names, skipped = _read_cells(file)
    for needed in ("score", "label"):
        if needed not in names:
            has = ", ".join(sorted(names)) or "no row"
            raise DataError(f"{file}: there is no column '{needed}'; it has: {has}{_WAY if needed == 'label' else ''}")
    # A table of `corpus-audit score` has the column even where the scored file named no group.
    has_groups = pc.any(pc.not_equal(cells["group"], "")).as_py()
    ids = next((name for name in _IDS if name in names), None)
    with open_in_memory() as connection:
        connection.register("cells", cells)
        if ids is None and connection.sql(_COUNTS_DIFFER).fetchall() == [(True,)]:
            raise DataError(
                f"{file}: the detectors have unequally many rows and there is no column 'example_id', so nothing says "
                "which rows are of one text; add it"
            )
        settings = _parse_distinct_cells(cells, ["detector", "parameters"], _parse_setting, _SETTING)
        connection.register("settings", settings)
        connection.register("labels", _parse_distinct_cells(cells, ["label"], parse_label, pa.int8()))
        connection.register("days", _parse_distinct_cells(cells, ["published"], _parse_optional_day, pa.date32()))
        connection.execute(_ROWS, {"ids": ids, "has_groups": has_groups, "no_number": _NO_NUMBER})
        connection.execute(_USABLE)
        _refuse_contradictions(connection)
        texts = connection.sql(_TEXTS).to_arrow_table()
        scores = connection.sql(_SCORES).to_arrow_table()
        unusable = connection.sql(_UNUSABLE).fetchall()
    of_first_rows = pc.is_in(cells["place"], value_set=texts["place"].combine_chunks())
    for name in ("text", "sha256"):
        texts = texts.append_column(name, cells[name].filter(of_first_rows))
    labels = LabelReader()
    for _, _, problem, label in unusable:
        if problem == NOT_UNDERSTOOD:
            labels.count_not_understood(label)
    return GivenRows(
        texts,
        scores,
        frozenset((row["detector"], row["parameters"]) for row in settings["meaning"].drop_null().to_pylist()),
        has_groups,
        (*skipped, *(Skipped(location, place, problem) for location, place, problem, _ in unusable)),
        labels.describe_not_understood("their rows left out"),
    )


def _read_cells(file: Path) -> tuple[pa.Table, set[str], list[Skipped]]:
    """Every readable row: its cells as strings, empty where there is nothing, and its score; the names of the columns
    that there are; and the rows that cannot be read."""
    batches: list[pa.RecordBatch] = []
    names: set[str] = set()
    skipped: list[Skipped] = []
    entries = open_rows(file).entries()
    while chunk := list(itertools.islice(entries, _ROWS_AT_ONCE)):
        rows = [entry for entry in chunk if isinstance(entry, Row)]
        skipped += [entry for entry in chunk if isinstance(entry, Skipped)]
        names.update(column_names(rows))
        try:
            batches.append(_build_cell_batch(rows))
        except UnicodeEncodeError:
            problems = [_find_invalid_cell(row) for row in rows]
            skipped += [problem for problem in problems if problem is not None]
            batches.append(
                _build_cell_batch([row for row, problem in zip(rows, problems, strict=True) if problem is None])
            )
    cells = pa.Table.from_batches(batches)
    if not len(cells):
        raise build_unusable_file_error(file, SkippedRows(len(skipped), skipped[:1]))
    return cells, names, sorted(skipped, key=lambda row: row.index)


def _find_invalid_cell(row: Row) -> Skipped | None:
    used = ((name, row.values.get(name)) for name in (*_STRINGS, "parameters"))
    problems = ((name, explain_invalid_unicode(cell)) for name, cell in used if isinstance(cell, str))
    first = next(((name, problem) for name, problem in problems if problem is not None), None)
    return first and Skipped(row.location, row.index, f"column '{first[0]}' {first[1]}")


def _build_cell_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Raises UnicodeEncodeError for a lone surrogate in a string."""
    columns = {name: [row.values.get(name) for row in rows] for name in column_names(rows)}

    def as_strings(name: str, *, is_json: bool = False) -> pa.StringArray:
        """The cells of a column, trimmed; empty where there is nothing (null, NaN)."""
        if name not in columns:
            return pa.repeat("", len(rows))
        if set(map(type, columns[name])) <= {str, type(None)}:
            return pc.fill_null(pc.utf8_trim_whitespace(pa.array(columns[name], pa.string())), "")
        cells = (json.dumps(cell) if is_json and isinstance(cell, dict) else cell for cell in columns[name])
        return pa.array(map(label_to_spelling, cells), pa.string())

    strings = {name: as_strings(name) for name in _STRINGS}
    scores = [_parse_score(cell) for cell in columns.get("score", [None] * len(rows))]
    return pa.RecordBatch.from_pydict(
        {
            **strings,
            # An hour of the day makes no other date.
            "published": pc.utf8_slice_codeunits(strings["published"], 0, 10),
            "parameters": as_strings("parameters", is_json=True),
            # What a row says of its detector, as it is written: rows without ids are counted by it.
            "counted_by": pc.binary_join_element_wise(strings["detector"], as_strings("parameters"), ""),
            "score": pa.array([score for score, _ in scores], pa.float64()),
            "unscored": pa.array([why for _, why in scores], pa.string()),
            "location": pa.array([row.location for row in rows], pa.string()),
            "place": pa.array([row.index for row in rows], pa.int64()),
        }
    )


def _parse_score(cell: object) -> tuple[float | None, str | None]:
    """A score, infinite where it is too large, or why there is none. An empty cell is a text that was not scored."""
    if not isinstance(cell, float):
        written = label_to_spelling(cell)
        if not written:
            return None, "the file has no score of the text"
        try:
            cell = float(written)
        except ValueError:
            return None, _NO_NUMBER
    if math.isnan(cell):
        return None, "the score is not a number (NaN)"
    return (cell if abs(cell) <= _LARGEST else math.copysign(math.inf, cell)), None


def _parse_distinct_cells(
    cells: pa.Table, names: list[str], parse: Callable[..., object], meaning: pa.DataType
) -> pa.Table:
    """The distinct cells of these columns, each with its ``meaning`` or its ``problem``.

    A cell has a problem, and means nothing, where ``parse`` raises ValueError for it.
    """
    distinct = cells.group_by(names).aggregate([])
    meanings: list[object] = []
    problems: list[str | None] = []
    for spelling in zip(*(distinct[name].to_pylist() for name in names), strict=True):
        try:
            meanings.append(parse(*spelling))
            problems.append(None)
        except ValueError as error:
            meanings.append(None)
            problems.append(str(error))
    found = distinct.append_column("meaning", pa.array(meanings, meaning))
    return found.append_column("problem", pa.array(problems, pa.string()))


def _parse_optional_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise ValueError("published is no date (2024-05-31)") from None


def _parse_setting(detector: str, text: str) -> Mapping[str, str]:
    """A detector by its name and its parameters as the registry writes them; what is not said of a detector of ours is
    at its default, and one that the registry does not know is a detector by both together."""
    name = detector or "score"
    if name == blind_controls.NAME:
        raise ValueError(f"a detector cannot be called {name}: that is the classifier that sees no model")
    try:
        parameters = json.loads(text or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("parameters are no JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return {"detector": name, "parameters": REGISTRY[name].to_json(parameters)}
    if parameters:
        name = f"{name} {', '.join(f'{key}={value}' for key, value in sorted(parameters.items()))}"
    return {"detector": name, "parameters": canonical_json({})}


def _refuse_contradictions(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise DataError for the first usable row that says something else of its text than the first row of that, or
    scores it with a setting that has scored it."""
    found = connection.sql(_FIRST_CONTRADICTION).fetchall()
    for location, identity, detector, said, first_said, first_location in found:
        for name, value in said.items():
            if value != first_said[name]:
                raise DataError(
                    f"{location}: the {name} of the text {identity} is {value!r}, at {first_location} it is "
                    f"{first_said[name]!r}; make them the same"
                )
        raise DataError(f"{location}: {detector} scores the text {identity} a second time; keep one score")
