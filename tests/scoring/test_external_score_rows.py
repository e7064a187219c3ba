"""The reader of tables of scores equals a twin that reads the rows one by one, in every format."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from made_files import write_rows
from profiles import max_examples

from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import DataError
from audit_pipeline.readers.formats import read_rows
from audit_pipeline.readers.labels import LabelReader, SpellingError, parse_label
from audit_pipeline.scoring import external_score_rows
from audit_pipeline.scoring.external_scores import read_external_scores
from audit_pipeline.tables import Pair

Given = dict[str, Any]

NUMBERS = ["1", "1.5", " -2e3 ", "+1", "1_0", "１２", "inf", "-Infinity", "nan", "1e400", "1e-400", "1e101", ".5", "5."]
WRONG = ["high", "0x10", "1e", "nan(1)", "--1", "-", "a text"]
BLANKS = ["", " ", "\u2003\t"]
LABELS = ["1", "1.0", "TRUE", " member\n", "0", "0.0", "False", "Non-Member", "-0.0", "null", "unknown", "maybe", "2"]
OBJECTS = ["{}", '{"k": 0.3}', '{"b": 2, "a": 1}', "[1]", "{", "3", '{"a": NaN}']
DAYS = ["2024-05-31", " 2024-05-31T10:00", "20240531", "2024-W22-5", "yesterday", "2024-13-01"]
LOOSE = {
    "example_id": [*"abc", " a ", "1.0", "\u00a0", "", None, 1, 1.0, -0.0, math.nan, True],
    "score": [*NUMBERS, *WRONG, *BLANKS, None, 0, 3, 0.25, -1.5, math.nan, math.inf, -math.inf, 10**30, True, [1]],
    "label": [*LABELS, *BLANKS, None, 1, 0, 1.0, 0.0, -0.0, math.nan, True, False, 7, [1]],
    "group": ["g", " g", "h", "", None, 5, {"a": 1}],
    "detector": ["min_k", "mine", " mine", "", None, "blind_control", 4],
    "parameters": [*OBJECTS, "", None, {"k": 0.3}, {}, 3],
    "split": ["calibration", " evaluation", "", None, "train"],
    "collection": ["c", "given", "", None],
    "text": ["two words", "TWO  words", " a\u2028b  c\x85d ", "", None, 12],
    "sha256": ["a1", " a1", "b2", "", None],
    "published": [*DAYS, "", None, 20240531, math.nan],
}
TYPED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "example_id": (pa.int64(), [1, 2, 3, None]),
    "score": (pa.float32(), [0.1, -3.0, math.nan, math.inf, 1e30, None]),
    "label": (pa.float64(), [1.0, 0.0, -0.0, math.nan, None, 2.0]),
    "group": (pa.dictionary(pa.int8(), pa.string()), ["g", " h ", "", None]),
    "detector": (pa.large_string(), ["mine", "min_k", "", None]),
    "parameters": (pa.struct({"k": pa.float64()}), [{"k": 0.3}, {}, None]),
    "split": (pa.string(), ["calibration", "", None]),
    "collection": (pa.bool_(), [True, False, None]),
    "text": (pa.string(), ["two words", "", None]),
    "sha256": (pa.large_string(), ["a1", "b2", "", None]),
    "published": (pa.timestamp("us", "Asia/Tokyo"), [datetime(2024, 5, 31, 23), datetime(1000, 1, 1), None]),
}
TEXT_COLUMNS = ("label", "group", "collection", "published", "text", "words")


def expect_tables(file: Path) -> Given:
    """Return what :func:`read_external_scores` must find, row by row, by the definition of each column.

    Raises:
        DataError: If the file must be refused. The message is the beginning of the expected message.
    """
    found = read_rows(file)
    columns = {name for row in found.rows for name in row.values}
    for name in ("score", "label"):
        if name not in columns:
            available = ", ".join(sorted(columns)) or "no column"
            raise DataError(f"{file}: there is no column '{name}'. The file has: {available}. Add the column '{name}'")
    # `corpus-audit score` writes the column of groups even if the scored file has no groups.
    has_groups = any(clean(row.values.get("group")) for row in found.rows)
    id_column = next((name for name in ("example_id", "example_index", "id") if name in columns), None)
    detectors = [clean(row.values.get("detector")) + clean(row.values.get("parameters")) for row in found.rows]
    if id_column is None and len({detectors.count(one) for one in detectors}) > 1:
        raise DataError(
            f"{file}: the detectors have different numbers of rows, so the rows of a text cannot be matched"
        )
    texts: dict[str, Given] = {}
    scores: dict[tuple[str, str, str], tuple[float | None, str | None]] = {}
    skipped, labels = [(one.location, one.index, one.reason) for one in found.skipped], LabelReader()
    for place, row in enumerate(found.rows):
        identity = f"{detectors[:place].count(detectors[place]):07d}"
        if id_column is not None:
            identity = clean(row.values.get(id_column))
        try:
            text, setting, score = parse_row(row.values, identity, has_groups)
        except ValueError as error:
            if isinstance(error, SpellingError):
                labels.count_unknown_spelling(row.values.get("label"))
            skipped.append((row.location, row.index, str(error)))
            continue
        first = texts.setdefault(identity, {**text, "location": row.location})
        for name in ("label", "group", "collection", "split"):
            if first[name] != text[name]:
                there = f"at {first['location']} it is {first[name]!r}. Correct one of the rows."
                raise DataError(f"{row.location}: the {name} of the text {identity} is {text[name]!r}, but {there}")
        if (identity, *setting) in scores:
            raise DataError(f"{row.location}: {setting[0]} scores the text {identity} a second time.")
        scores[identity, *setting] = score
    if all(score is None for score, _ in scores.values()):
        raise DataError(f"{file}: no row has a score")
    # Equal texts with both labels are skipped. No text here is long enough to be a near-duplicate.
    sides = {(text["same"], text["label"]) for text in texts.values() if text["same"]}
    both = {same for same, label in sides if label == 1 and (same, 0) in sides}
    kept = {name: text for name, text in texts.items() if text["label"] is None or text["same"] not in both}
    if not kept:
        raise DataError(f"{file}: there is nothing to compare")
    splits: dict[str, str] = {}
    for text in texts.values():
        if text["split"] is not None and splits.setdefault(text["group"], text["split"]) != text["split"]:
            raise DataError(f"{text['location']}: the group {text['group']} is in both splits.")
    spelt = labels.describe_unknown_spellings("so their rows are skipped")
    return {
        "scores": [(*key, *replace_infinite(key, scores)) for key in scores if key[0] in kept],
        # A group is in the split that any of its texts names.
        "texts": [
            {"id": name, "split": splits.get(text["group"], "evaluation") if splits else None}
            | {column: text[column] for column in TEXT_COLUMNS}
            for name, text in kept.items()
        ],
        "skipped": skipped,
        "spelt": [] if spelt is None else [spelt],
    }


def clean(cell: object) -> str:
    return "" if cell is None or (isinstance(cell, float) and math.isnan(cell)) else str(cell).strip()


def parse_row(values: Any, identity: str, has_groups: bool) -> tuple[Given, tuple[str, str], Any]:
    """Return the text of a row, its detector with parameters, and its score with the reason for a missing score."""
    cells = {name: clean(values.get(name)) for name in LOOSE}
    if not identity:
        raise ValueError("the row has no example_id")
    label, published = parse_label(values.get("label")), values.get("published")
    if cells["split"] not in ("", "calibration", "evaluation"):
        raise ValueError("split is neither calibration nor evaluation")
    if has_groups and not cells["group"]:
        raise ValueError("the row has no group")
    try:
        day = date.fromisoformat(cells["published"][:10]) if cells["published"] else None
    except ValueError:
        raise ValueError("published is not a date such as 2024-05-31") from None
    text = {
        "label": label,
        "group": cells["group"] if has_groups else identity,
        "collection": cells["collection"] or "given",
        "split": cells["split"] or None,
        "published": published.date() if isinstance(published, datetime) else day,
        "text": cells["text"],
        "words": len(cells["text"].split()),
        "same": " ".join(cells["text"].casefold().split()) or cells["sha256"],
    }
    try:
        score = float(cells["score"]) if cells["score"] else None
    except ValueError:
        raise ValueError("the score is not a number") from None
    reason = None if cells["score"] else "the file has no score of the text"
    if (isinstance(values.get("score"), float) and not cells["score"]) or (score is not None and math.isnan(score)):
        score, reason = None, "the score is NaN"
    elif score is not None and abs(score) > 1e100:
        score = math.copysign(math.inf, score)
    name, written = cells["detector"] or "score", values.get("parameters")
    if name == "blind_control":
        raise ValueError("'blind_control' is the name of the blind control, so a detector cannot have this name")
    try:
        parameters = written if isinstance(written, dict) else json.loads(cells["parameters"] or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("the parameters are not a JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return text, (name, REGISTRY[name].to_json(parameters)), (score, reason)
    assignments = ", ".join(f"{key}={value}" for key, value in sorted(parameters.items()))
    return text, (f"{name} {assignments}".strip(), "{}"), (score, reason)


def replace_infinite(key: tuple[str, str, str], scores: Any) -> tuple[float | None, str | None]:
    score, problem = scores[key]
    if score is None or math.isfinite(score):
        return score, problem
    own = [one for other, (one, _) in scores.items() if other[1:] == key[1:] and one is not None]
    finite = [one for one in own if math.isfinite(one)]
    if not finite:
        return math.copysign(1.0, score), None
    low, high = min(finite), max(finite)
    gap = (high - low) / len(finite) or 1.0
    ends = min(low - gap, math.nextafter(low, -math.inf)), max(high + gap, math.nextafter(high, math.inf))
    return ends[score > 0], None


def read_tables(file: Path) -> Given:
    """Return the tables of :func:`read_external_scores` in the form of :func:`expect_tables`."""
    found = read_external_scores(file, Pair("mine", "a model"), "run", calibration=0.5, seed=1, language="en")
    given_splits = [row["split"] if found.names_splits else None for row in found.examples.to_pylist()]
    names = ("example_id", "detector", "parameters", "score", "reason")
    return {
        "scores": [tuple(row[name] for name in names) for row in found.scores.to_pylist()],
        "texts": [
            {"id": row["example_id"], "split": split, **{name: row[name] for name in TEXT_COLUMNS}}
            for row, split in zip(found.examples.to_pylist(), given_splits, strict=True)
        ],
        "skipped": [(one.location, one.index, one.reason) for one in found.skipped],
        "spelt": [note for note in found.notes if note.startswith(tuple("123456789")) and "label(s)" in note],
    }


def check_tables(file: Path) -> None:
    try:
        expected = expect_tables(file)
    except DataError as error:
        with pytest.raises(DataError, match=f"^{re.escape(str(error))}"):
            read_tables(file)
    else:
        assert read_tables(file) == expected


@st.composite
def tables(draw: st.DrawFn, cells: dict[str, list[Any]]) -> list[Given]:
    """Draw rows whose cells are mostly usable. Some cells are drawn from ``cells``."""
    needed = {name for name in ("score", "label") if draw(st.integers(0, 19))}
    others = [name for name in cells if name not in ("score", "label")]
    columns = [*needed, *draw(st.lists(st.sampled_from(others), unique=True))]
    rows = []
    for number in range(draw(st.integers(1, 14))):
        text = number // 2 if "detector" in columns else number
        usual = {
            "example_id": f"t{text}",
            "score": number / 7,
            "label": text % 2,
            "group": f"g{text // 2}",
            "detector": f"d{number % 2}",
            "split": "calibration" if text // 2 % 2 else "evaluation",
            "collection": "c",
            "text": f"text {text}",
            "published": "2024-05-31",
        }
        row = {name: draw(st.sampled_from(cells[name])) for name in columns if not draw(st.integers(0, 5))}
        rows.append({name: row.get(name, usual.get(name)) for name in columns})
    return rows


# The second and third text are equal, and so are the first and last by their digest. The fourth has no label.
BOTH_SIDES: list[Given] = [
    {"score": 0.1, "label": 1, "text": "", "sha256": "a1"},
    {"score": 0.2, "label": 1, "text": "two words", "sha256": "b2"},
    {"score": math.inf, "label": 0, "text": " TWO  words", "sha256": "c3"},
    {"score": 0.4, "label": None, "text": "two words", "sha256": "b2"},
    {"score": 0.5, "label": 0, "text": "other words", "sha256": "a2"},
    {"score": 0.6, "label": 0, "text": "", "sha256": " a1"},
]


def build_rows(names: str, *rows: tuple[Any, ...]) -> list[Given]:
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


WITHOUT_IDS = build_rows("score label detector", (1, 1, "x"), (2, 0, "x"), (3, 1, "y"), (4, 0, "y"))
SETTINGS = build_rows(
    "example_id score label detector parameters",
    *(("a", 1, 1, "min_k", '{"k": 0.20}'), ("a", 1, 1, "mine", '{"b": 2, "a": 1}'), ("b", 0, 0, "mine", "{}")),
)
SPLITS = build_rows(
    "example_id score label group split",
    *(("a", 0, 0, "one", "calibration"), ("b", 0, 1, "two", "evaluation"), ("c", 0, 0, "one", "evaluation")),
)
BY_HAND: list[list[Given]] = [
    *(BOTH_SIDES, BOTH_SIDES[1:3], WITHOUT_IDS, WITHOUT_IDS[:3], SETTINGS, SPLITS[:2], SPLITS),
    [{"score": 1.0}],
    [{"label": 1}],
    build_rows("score label", (None, 1), (math.nan, 0)),
    build_rows("score label detector", (1, 1, "blind_control"), (1, 1, "mine")),
    build_rows("example_id score label", ("a", 1, 1), ("a", 1, 1)),
    build_rows("example_id score label detector", ("a", 1, 1, "x"), ("a", 1, 0, "y")),
    *(
        build_rows("score label", *((score, 0) for score in finite), (math.inf, 1), (-math.inf, 1))
        for finite in ([1e16, 1e16], [1.0, 1.0 + 2**-52], [-5.0])
    ),
]
"""Cases that random draws may miss."""
in_one_folder = max_examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("rows", BY_HAND)
def test_tables_by_hand_equal_the_twin(tmp_path: Path, rows: list[Given]) -> None:
    check_tables(write_rows(tmp_path / "scores.jsonl", rows))


@in_one_folder
@given(tables(LOOSE), st.lists(st.tuples(st.integers(0, 13), st.sampled_from(["", "{", "[1]", '{"other": 1}']))))
def test_lines_of_json_equal_the_twin(tmp_path: Path, rows: list[Given], others: list[tuple[int, str]]) -> None:
    lines = [json.dumps(row) for row in rows]
    for place, line in others:
        lines.insert(place, line)
    file = tmp_path / "scores.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    check_tables(file)


@in_one_folder
@given(tables({name: cells for name, (_, cells) in TYPED.items()}))
def test_typed_columns_equal_the_twin(tmp_path: Path, rows: list[Given]) -> None:
    file = tmp_path / "scores.parquet"
    numbered = [{**row, "example_id": number // 2} if "example_id" in row else row for number, row in enumerate(rows)]
    columns = {}
    for name in rows[0]:
        kind, cells = TYPED[name]
        held = [row[name] for row in numbered]
        text = [str(cell) for cell in held]
        columns[name] = pa.array(held, kind) if all(cell in cells or name == "score" for cell in held) else text
    pq.write_table(pa.table(columns), file)
    check_tables(file)


def test_a_file_that_is_read_in_parts_equals_the_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unusable rows are before and after the end of a part."""
    monkeypatch.setattr(external_score_rows, "_ROWS_PER_BATCH", 4)
    wrong = {3: "maybe", 4: "ja", 8: "nein"}
    rows = [
        {"example_id": f"t{n}", "score": n / 7, "label": wrong.get(n, str(n % 2)), "text": f"a, text {n}"}
        for n in range(13)
    ]
    file = tmp_path / "scores.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), "{"]), encoding="utf-8")
    assert len(expect_tables(file)["skipped"]) == 4
    check_tables(file)


def test_a_string_that_is_not_valid_unicode_skips_its_row_only(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    rows = [{"score": 1.0, "label": 1, "text": "whole"}, {"score": 2.0, "label": 0, "text": "\ud800 lone"}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = read_external_scores(file, Pair("mine", "a model"), "run", calibration=0, seed=1, language="en")
    reason = "column 'text' is not valid Unicode: lone surrogate at character 0"
    assert [(one.location, one.reason) for one in found.skipped] == [("scores.jsonl:2", reason)]
    assert found.scores["score"].to_pylist() == [1.0]
