"""The columns of a table of scores say what its rows say, taken one by one, in every format."""

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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_files import write_rows

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
WAY_TO_LABELS = (
    ": 1 member, 0 non-member, empty unknown. `corpus-audit score` copies the column label of the file that it scores"
)


def row_by_row(file: Path) -> Given:
    """What :func:`read_external_scores` is to find, by the definition of each column, a row at a time."""
    found = read_rows(file)
    columns = {name for row in found.rows for name in row.values}
    for needed in ("score", "label"):
        if needed not in columns:
            has = ", ".join(sorted(columns)) or "no column"
            way = WAY_TO_LABELS if needed == "label" else ""
            raise DataError(f"{file}: there is no column '{needed}'; the file has: {has}. Add '{needed}'{way}")
    # `corpus-audit score` writes the column of groups even where the scored file names none.
    if not any(plain(row.values.get("group")) for row in found.rows):
        columns.discard("group")
    id_column = next((name for name in ("example_id", "example_index", "id") if name in columns), None)
    counted: dict[str, int] = {}
    texts: dict[str, Given] = {}
    scores: dict[tuple[str, str, str], tuple[float | None, str | None]] = {}
    skipped = [(one.location, one.index, one.reason) for one in found.skipped]
    labels = LabelReader()
    ids = []
    for row in found.rows:
        if id_column is not None:
            ids.append(plain(row.values.get(id_column)))
        else:
            detector = plain(row.values.get("detector")) + plain(row.values.get("parameters"))
            counted[detector] = counted.get(detector, -1) + 1
            ids.append(f"{counted[detector]:07d}")
    if len(set(counted.values())) > 1:
        raise DataError(
            f"{file}: the detectors have different numbers of rows, so the rows of a text cannot be matched. Add a "
            "column 'example_id'"
        )
    for row, identity in zip(found.rows, ids, strict=True):
        try:
            text = read_text(row.values, identity, columns)
            score = score_of(row.values.get("score"))
            setting = setting_of(row.values)
        except ValueError as error:
            if isinstance(error, SpellingError):
                labels.count_unknown_spelling(row.values.get("label"))
            skipped.append((row.location, row.index, str(error)))
            continue
        first = texts.setdefault(identity, {**text, "location": row.location})
        for name in ("label", "group", "collection", "split"):
            if first[name] != text[name]:
                raise DataError(
                    f"{row.location}: the {name} of the text {identity} is {text[name]!r}, but at "
                    f"{first['location']} it is {first[name]!r}. Correct one of the rows"
                )
        if (identity, *setting) in scores:
            raise DataError(
                f"{row.location}: {setting[0]} scores the text {identity} a second time. Delete one of the scores"
            )
        scores[identity, *setting] = score
    spelt = labels.describe_unknown_spellings("their rows left out")
    return {
        "scores": [(*key, *placed(key, scores)) for key in scores],
        "texts": [{"id": identity, **text} for identity, text in texts.items()],
        "skipped": skipped,
        "spelt": [] if spelt is None else [spelt],
    }


def plain(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()


def read_text(values: Any, identity: str, columns: set[str]) -> Given:
    if not identity:
        raise ValueError("the row has no example_id")
    label, split, group = parse_label(values.get("label")), plain(values.get("split")), plain(values.get("group"))
    if split not in ("", "calibration", "evaluation"):
        raise ValueError("split is neither calibration nor evaluation")
    if "group" in columns and not group:
        raise ValueError("the row has no group")
    text = plain(values.get("text"))
    return {
        "label": label,
        "group": group or identity,
        "collection": plain(values.get("collection")) or "given",
        "split": split or None,
        "published": read_day(values.get("published")),
        "text": text,
        "words": len(text.split()),
        "same": " ".join(text.casefold().split()) or plain(values.get("sha256")),
    }


def on_both_sides(texts: list[Given]) -> set[str]:
    """The ids of the texts that are another of the other side, too. None here is long enough to be nearly another."""
    sides: dict[str, set[int]] = {}
    for text in texts:
        if text["label"] is not None and text["same"]:
            sides.setdefault(text["same"], set()).add(text["label"])
    return {text["id"] for text in texts if text["label"] is not None and sides.get(text["same"]) == {0, 1}}


def read_day(value: object) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    try:
        return date.fromisoformat(plain(value)[:10]) if plain(value) else None
    except ValueError:
        raise ValueError("published is no date (2024-05-31)") from None


def score_of(value: object) -> tuple[float | None, str | None]:
    if isinstance(value, float) and math.isnan(value):
        return None, "the score is not a number (NaN)"
    if not plain(value):
        return None, "the file has no score of the text"
    try:
        score = float(plain(value))
    except ValueError:
        raise ValueError("score is no number") from None
    if math.isnan(score):
        return None, "the score is not a number (NaN)"
    return (score if abs(score) <= 1e100 else math.copysign(math.inf, score)), None


def setting_of(values: Any) -> tuple[str, str]:
    name, written = plain(values.get("detector")) or "score", values.get("parameters")
    if name == "blind_control":
        raise ValueError("a detector cannot be called blind_control: that is the classifier that sees no model")
    try:
        parameters = written if isinstance(written, dict) else json.loads(plain(written) or "{}")
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("parameters are no JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return name, REGISTRY[name].to_json(parameters)
    said = ", ".join(f"{key}={value}" for key, value in sorted(parameters.items()))
    return f"{name} {said}".strip(), "{}"


def placed(key: tuple[str, str, str], scores: Any) -> tuple[float | None, str | None]:
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


def by_columns(file: Path) -> Given:
    """The same from the tables that :func:`read_external_scores` makes."""
    found = read_external_scores(file, Pair("mine", "a model"), "run", calibration=0.5, seed=1, language="en")
    given_splits = [row["split"] if found.names_splits else None for row in found.examples.to_pylist()]
    names = ("example_id", "detector", "parameters", "score", "reason")
    of_text = ("label", "group", "collection", "published", "text", "words")
    return {
        "scores": [tuple(row[name] for name in names) for row in found.scores.to_pylist()],
        "texts": [
            {"id": row["example_id"], "split": split, **{name: row[name] for name in of_text}}
            for row, split in zip(found.examples.to_pylist(), given_splits, strict=True)
        ],
        "skipped": [(one.location, one.index, one.reason) for one in found.skipped],
        "spelt": [note for note in found.notes if note.startswith(tuple("123456789")) and "label(s)" in note],
    }


def assert_the_same(file: Path) -> None:
    refused, wanted = "", {}
    try:
        wanted = row_by_row(file)
    except DataError as error:
        refused = str(error)
    if refused:
        with pytest.raises(DataError, match=f"^{re.escape(refused)}$"):
            by_columns(file)
        return
    splits = {text["group"]: text["split"] for text in wanted["texts"] if text["split"] is not None}
    divided = any(text["split"] not in (None, splits.get(text["group"])) for text in wanted["texts"])
    unscored = all(score is None for *_, score, _ in wanted["scores"])
    left_out = on_both_sides(wanted["texts"])
    if not unscored and len(left_out) == len(wanted["texts"]):
        with pytest.raises(DataError, match="this comparison could not find anything"):
            by_columns(file)
        return
    if divided or unscored:
        with pytest.raises(DataError, match="is in both splits" if not unscored else "no row has a score"):
            by_columns(file)
        return
    for text in wanted["texts"]:
        text.pop("location")
        text.pop("same")
        # A group is in the split that any of its texts names.
        text["split"] = splits.get(text["group"], "evaluation") if splits else None
    wanted["texts"] = [text for text in wanted["texts"] if text["id"] not in left_out]
    wanted["scores"] = [score for score in wanted["scores"] if score[0] not in left_out]
    assert by_columns(file) == {name: wanted[name] for name in ("scores", "texts", "skipped", "spelt")}


@st.composite
def tables(draw: st.DrawFn, cells: dict[str, list[Any]]) -> list[Given]:
    """Rows that hold mostly what can be used, now and then a cell that is drawn from ``cells``."""
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


# The second and the third are one text, the first and the last by their digest; the fourth is of neither side.
BOTH_SIDES: list[Given] = [
    {"score": 0.1, "label": 1, "text": "", "sha256": "a1"},
    {"score": 0.2, "label": 1, "text": "two words", "sha256": "b2"},
    {"score": math.inf, "label": 0, "text": " TWO  words", "sha256": "c3"},
    {"score": 0.4, "label": None, "text": "two words", "sha256": "b2"},
    {"score": 0.5, "label": 0, "text": "other words", "sha256": "a2"},
    {"score": 0.6, "label": 0, "text": "", "sha256": " a1"},
]


def rows_of(names: str, *rows: tuple[Any, ...]) -> list[Given]:
    return [dict(zip(names.split(), row, strict=True)) for row in rows]


WITHOUT_IDS = rows_of("score label detector", (1, 1, "x"), (2, 0, "x"), (3, 1, "y"), (4, 0, "y"))
SETTINGS = rows_of(
    "example_id score label detector parameters",
    *(("a", 1, 1, "min_k", '{"k": 0.20}'), ("a", 1, 1, "mine", '{"b": 2, "a": 1}'), ("b", 0, 0, "mine", "{}")),
)
SPLITS = rows_of(
    "example_id score label group split",
    *(("a", 0, 0, "one", "calibration"), ("b", 0, 1, "two", "evaluation"), ("c", 0, 0, "one", "evaluation")),
)
BY_HAND: list[list[Given]] = [
    *(BOTH_SIDES, BOTH_SIDES[1:3], WITHOUT_IDS, WITHOUT_IDS[:3], SETTINGS, SPLITS[:2], SPLITS),
    [{"score": 1.0}],
    [{"label": 1}],
    rows_of("score label", (None, 1), (math.nan, 0)),
    rows_of("score label detector", (1, 1, "blind_control"), (1, 1, "mine")),
    rows_of("example_id score label", ("a", 1, 1), ("a", 1, 1)),
    rows_of("example_id score label detector", ("a", 1, 1, "x"), ("a", 1, 0, "y")),
    *(
        rows_of("score label", *((score, 0) for score in finite), (math.inf, 1), (-math.inf, 1))
        for finite in ([1e16, 1e16], [1.0, 1.0 + 2**-52], [-5.0])
    ),
]
"""Cases that chance may leave out."""
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("rows", BY_HAND)
def test_rows_by_hand_are_read_as_they_are(tmp_path: Path, rows: list[Given]) -> None:
    assert_the_same(write_rows(tmp_path / "scores.jsonl", rows))


@in_one_folder
@given(tables(LOOSE), st.lists(st.tuples(st.integers(0, 13), st.sampled_from(["", "{", "[1]", '{"other": 1}']))))
def test_lines_of_json_are_read_as_their_rows_are(
    tmp_path: Path, rows: list[Given], others: list[tuple[int, str]]
) -> None:
    lines = [json.dumps(row) for row in rows]
    for place, line in others:
        lines.insert(place, line)
    file = tmp_path / "scores.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    assert_the_same(file)


@in_one_folder
@given(tables({name: cells for name, (_, cells) in TYPED.items()}))
def test_columns_of_types_are_read_as_their_rows_are(tmp_path: Path, rows: list[Given]) -> None:
    file = tmp_path / "scores.parquet"
    numbered = [{**row, "example_id": number // 2} if "example_id" in row else row for number, row in enumerate(rows)]
    columns = {}
    for name in rows[0]:
        kind, cells = TYPED[name]
        held = [row[name] for row in numbered]
        text = [str(cell) for cell in held]
        columns[name] = pa.array(held, kind) if all(cell in cells or name == "score" for cell in held) else text
    pq.write_table(pa.table(columns), file)
    assert_the_same(file)


def test_a_file_that_is_read_in_parts_is_read_as_its_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that cannot be used are on both sides of where one part ends."""
    monkeypatch.setattr(external_score_rows, "_ROWS_PER_BATCH", 4)
    wrong = {3: "maybe", 4: "ja", 8: "nein"}
    rows = [
        {"example_id": f"t{n}", "score": n / 7, "label": wrong.get(n, str(n % 2)), "text": f"a, text {n}"}
        for n in range(13)
    ]
    file = tmp_path / "scores.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), "{"]), encoding="utf-8")
    assert len(row_by_row(file)["skipped"]) == 4
    assert_the_same(file)


def test_a_string_that_is_not_valid_unicode_costs_its_own_row(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    rows = [{"score": 1.0, "label": 1, "text": "whole"}, {"score": 2.0, "label": 0, "text": "\ud800 lone"}]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = read_external_scores(file, Pair("mine", "a model"), "run", calibration=0, seed=1, language="en")
    reason = "column 'text' is not valid Unicode: lone surrogate at character 0"
    assert [(one.location, one.reason) for one in found.skipped] == [("scores.jsonl:2", reason)]
    assert found.scores["score"].to_pylist() == [1.0]
