"""The rows of a table of scores that a user hands over: what each says, and why some cannot be used.

What belongs here: which columns there may be, what they mean, which rows cannot be used and which contradict each
other. What does not: what a cell holds (given_cells.py), splits and the tables that findings are drawn from
(given_scores.py).

What is said of a row that cannot be used never quotes it: with shifted columns any cell may hold a text. Only labels
that are not understood are reported as they are spelt, cut (fetch/labels.py).

One row per text and detector. Columns: ``score``; ``label`` (1 member, 0 non-member, empty: unknown); and where there
are some, ``group`` (the book or document that a text is of; without it every text stands alone), ``detector``,
``parameters``, ``example_id``, ``split`` (calibration | evaluation), ``collection``, ``text``, ``published``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import Split, canonical_json
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.formats import read_pieces
from audit_pipeline.fetch.labels import NOT_UNDERSTOOD, LabelReader, label_of
from audit_pipeline.fetch.rows import Skipped
from audit_pipeline.fetch.stream import Cells, Piece
from audit_pipeline.scoring.given_cells import (
    NO_NUMBER,
    PROBLEMS,
    Check,
    Codes,
    DictionaryColumn,
    InterpretedCells,
    Meaning,
    Places,
    Scores,
    meant,
    merge_dictionary_pieces,
    pairs_of,
    plain,
    plain_json,
    scores_of,
)
from audit_pipeline.separability import blind_controls

ONE_DETECTOR = "score"
COLLECTION = "given"

_IDS = ("example_id", "example_index")
_COUNTED_BY = "counted by"
"""Under it, beside the columns: what a row says of its detector, by which rows without ids are counted."""
_AS_WRITTEN = ("label", "group", "detector", "split", "collection", *_IDS)
_SPLITS: Mapping[str, Split | None] = {"": None, "calibration": "calibration", "evaluation": "evaluation"}

_NOTHING = pa.scalar("", pa.large_string())
_WAY = (
    ". Add it: 1 member, 0 non-member, empty unknown. `corpus-audit score` keeps the column label of the file that it "
    "scores; tables of earlier versions lack it: score the file again, no text is run twice"
)

Setting = tuple[str, str]
"""A detector and its parameters."""


@dataclass(frozen=True, eq=False)
class Texts:
    """What the rows say of each text, in the order in which usable rows meet them: [t] each.

    ``texts`` (large_string), ``digests`` (their sha256, empty where the file has none) and ``locations`` are those of
    the first usable row of each. A text without a group is one by its id.
    """

    ids: DictionaryColumn
    labels: InterpretedCells[int | None]
    groups: DictionaryColumn
    collections: InterpretedCells[str]
    splits: InterpretedCells[Split | None]
    published: InterpretedCells[date | None]
    texts: pa.ChunkedArray
    digests: pa.ChunkedArray
    locations: pa.ChunkedArray

    def __len__(self) -> int:
        return len(self.ids.codes)


@dataclass(frozen=True, eq=False)
class GivenRows:
    """The usable rows in their order: place of the text, setting and score, [n] each; and those that are not usable.

    ``columns`` are the file's. ``not_understood`` tells of labels that nobody can understand.
    """

    columns: frozenset[str]
    texts: Texts
    of_text: Places
    settings: InterpretedCells[Setting]
    scores: Scores
    skipped: tuple[Skipped, ...]
    not_understood: str | None


class _TextFields(NamedTuple):
    """What every row of a text must say alike."""

    label: InterpretedCells[int | None]
    group: DictionaryColumn
    collection: InterpretedCells[str]
    split: InterpretedCells[Split | None]


@dataclass(frozen=True, eq=False)
class _Read:
    """Every readable row: its cells by column, empty ones for a column that is not there, and its score, [n] each."""

    names: frozenset[str]
    cells: Mapping[str, DictionaryColumn]
    texts: pa.ChunkedArray
    digests: pa.ChunkedArray
    scores: Scores
    locations: pa.ChunkedArray
    indices: pa.ChunkedArray
    skipped: tuple[Skipped, ...]


def read_given_rows(file: Path) -> GivenRows:
    """The rows of ``file`` (of a format of fetch/formats.py).

    Raises DataError for a file that cannot be read or lacks the columns score and label, for a text that is scored
    twice by a detector, and where rows of one text contradict each other.
    """
    read = _read(file)
    for needed in ("score", "label"):
        if needed not in read.names:
            has = ", ".join(sorted(read.names)) or "no row"
            raise DataError(f"{file}: there is no column '{needed}'; it has: {has}{_WAY if needed == 'label' else ''}")
    cells = read.cells
    # A table of `corpus-audit score` has the column even where the scored file named no group.
    has_groups = "group" in read.names and cells["group"].names.to_pylist() != [""]
    ids = _ids(read, file)
    labels, label_check = _interpret_column(cells["label"], label_of)
    splits, split_check = _interpret_column(cells["split"], _split)
    published, day_check = _interpret_column(cells["published"], _day)
    collections, _ = _interpret_column(cells["collection"], lambda name: name or COLLECTION)
    settings, setting_check = meant(*pairs_of(cells["detector"], cells["parameters"]), _as_registered)
    why, reasons = _first_problems(
        [
            _empty(ids, "the row has no example_id"),
            label_check,
            split_check,
            *([_empty(cells["group"], "the row has no group")] if has_groups else []),
            day_check,
            (read.scores.problems, [one if one == NO_NUMBER else None for one in PROBLEMS]),
            setting_check,
        ]
    )
    usable = np.flatnonzero(why < 0)
    of_text, speaking = _by_text(ids, usable)
    settings = settings.take(usable)
    said = _TextFields(labels, cells["group"], collections, splits)
    _refuse_contradictions(read.locations, ids, said, settings, usable, speaking[of_text])
    texts = Texts(
        ids.take(speaking),
        labels.take(speaking),
        (cells["group"] if has_groups else ids).take(speaking),
        collections.take(speaking),
        splits.take(speaking),
        published.take(speaking),
        read.texts.take(pa.array(speaking)),
        read.digests.take(pa.array(speaking)),
        read.locations.take(pa.array(speaking)),
    )
    skipped, not_understood = _left_out(read, why, reasons)
    scores = read.scores.take(usable)
    columns = read.names if has_groups else read.names - {"group"}
    return GivenRows(columns, texts, of_text, settings, scores, (*read.skipped, *skipped), not_understood)


def _read(file: Path) -> _Read:
    names: set[str] = set()
    skipped: list[Skipped] = []
    cells: dict[str, list[pa.DictionaryArray]] = {}
    texts, digests, scores, locations, indices = [], [], [], [], []
    for piece in read_pieces(file):
        names.update(piece.columns)
        skipped += piece.skipped
        for name, column in _cells_of(piece).items():
            cells.setdefault(name, []).append(column.dictionary_encode())
        texts.append(plain(_cells(piece, "text")))
        digests.append(plain(_cells(piece, "sha256")))
        scores.append(scores_of(_cells(piece, "score")))
        locations.append(piece.locations)
        indices.append(piece.indices)
    return _Read(
        frozenset(names),
        {name: merge_dictionary_pieces(pieces) for name, pieces in cells.items()},
        pa.chunked_array(texts),
        pa.chunked_array(digests),
        Scores(*(np.concatenate(parts) for parts in zip(*((one.values, one.problems) for one in scores), strict=True))),
        pa.chunked_array(locations, pa.string()),
        pa.chunked_array(indices, pa.int64()),
        tuple(skipped),
    )


def _cells_of(piece: Piece) -> dict[str, pa.LargeStringArray]:
    written = {name: plain(_cells(piece, name)) for name in _AS_WRITTEN}
    parameters, detectors = _cells(piece, "parameters"), written["detector"]
    return {
        **written,
        "parameters": plain_json(parameters),
        # An hour of the day makes no other date.
        "published": pc.utf8_slice_codeunits(plain(_cells(piece, "published")), 0, 10),
        _COUNTED_BY: pc.binary_join_element_wise(detectors, plain(parameters), _NOTHING),
    }


def _cells(piece: Piece, name: str) -> Cells:
    found = piece.columns.get(name)
    return pa.nulls(len(piece), pa.string()) if found is None else found


def _ids(read: _Read, file: Path) -> DictionaryColumn:
    """The text of each row: by its id; without ids, the n-th row of each detector is the n-th text."""
    column = next((name for name in _IDS if name in read.names), None)
    if column is not None:
        return read.cells[column]
    detectors = read.cells[_COUNTED_BY].codes
    rows_of = np.bincount(detectors)
    if len(set(rows_of.tolist())) > 1:
        raise DataError(
            f"{file}: the detectors have unequally many rows and there is no column 'example_id', so nothing says "
            "which rows are of one text; add it"
        )
    codes = np.empty(len(detectors), np.int64)
    codes[np.argsort(detectors, kind="stable")] = np.tile(np.arange(rows_of[0]), len(rows_of))
    numbers = pa.array(np.arange(rows_of[0])).cast(pa.large_string())
    return DictionaryColumn(codes, pc.utf8_lpad(numbers, 7, "0"))


def _interpret_column(
    column: DictionaryColumn, meaning: Callable[[str], Meaning]
) -> tuple[InterpretedCells[Meaning], Check]:
    return meant(column.codes, column.names.to_pylist(), meaning)


def _empty(column: DictionaryColumn, reason: str) -> Check:
    place = column.names.index("").as_py()
    reasons: list[str | None] = [None] * len(column.names)
    if place >= 0:
        reasons[place] = reason
    return column.codes, reasons


def _first_problems(checks: Sequence[Check]) -> tuple[Codes, list[str]]:
    """[n]: what is wrong with each row, by the first of the checks that finds something: its place in the list of
    reasons; -1 where nothing is."""
    why = np.full(len(checks[0][0]), -1)
    places: dict[str, int] = {}
    for codes, reasons in checks:
        found = [-1 if reason is None else places.setdefault(reason, len(places)) for reason in reasons]
        why = np.where(why < 0, np.array(found)[codes], why)
    return why, list(places)


def _left_out(read: _Read, why: Codes, reasons: Sequence[str]) -> tuple[list[Skipped], str | None]:
    """The rows that cannot be used, and in words the labels that are not understood."""
    rows = np.flatnonzero(why >= 0)
    places, told = pa.array(rows), [reasons[place] for place in why[rows].tolist()]
    labels = LabelReader()
    for row, reason in zip(rows.tolist(), told, strict=True):
        if reason == NOT_UNDERSTOOD:
            labels.note(read.cells["label"].at(row))
    locations, indices = read.locations.take(places).to_pylist(), read.indices.take(places).to_pylist()
    return [Skipped(*one) for one in zip(locations, indices, told, strict=True)], labels.in_words("their rows left out")


def _by_text(ids: DictionaryColumn, usable: Places) -> tuple[Places, Places]:
    """The text of each usable row, numbered as they are met, and for each text the row where it is met."""
    _, first, of_row = np.unique(ids.codes[usable], return_index=True, return_inverse=True)
    met = np.argsort(first)
    number = np.empty(len(met), np.intp)
    number[met] = np.arange(len(met))
    return number[of_row], usable[first[met]]


def _refuse_contradictions(
    locations: pa.ChunkedArray,
    ids: DictionaryColumn,
    said: _TextFields,
    settings: InterpretedCells[Setting],
    usable: Places,
    met: Places,
) -> None:
    """Raise DataError for the first of the ``usable`` rows that says something else of its text than the row where the
    text is ``met`` ([n] each), or scores it with a setting that has scored it."""
    differing = {name: column.codes[usable] != column.codes[met] for name, column in said._asdict().items()}
    other = np.flatnonzero(np.any(list(differing.values()), axis=0))
    twice = _repeated(met * len(settings.values) + settings.codes)
    place = min([*other[:1].tolist(), *twice[:1].tolist()], default=None)
    if place is None:
        return
    row, first = int(usable[place]), int(met[place])
    where, identity = locations[row].as_py(), ids.at(row)
    for name, column in said._asdict().items():
        if differing[name][place]:
            raise DataError(
                f"{where}: the {name} of the text {identity} is {column.at(row)!r}, at {locations[first].as_py()} "
                f"it is {column.at(first)!r}; make them the same"
            )
    detector, _ = settings.at(place)
    raise DataError(f"{where}: {detector} scores the text {identity} a second time; keep one score")


def _repeated(values: Codes) -> Places:
    """Where a value stands that stands before too, in order."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return np.sort(order[1:][ordered[1:] == ordered[:-1]])


def _split(written: str) -> Split | None:
    if written not in _SPLITS:
        raise ValueError("split is neither calibration nor evaluation")
    return _SPLITS[written]


def _day(written: str) -> date | None:
    try:
        return date.fromisoformat(written) if written else None
    except ValueError:
        raise ValueError("published is no date (2024-05-31)") from None


def _as_registered(written: Setting) -> Setting:
    """A detector by its name and its parameters as the registry writes them; what is not said of a detector of ours is
    at its default, and one that the registry does not know is a detector by both together."""
    name, given = written[0] or ONE_DETECTOR, written[1] or "{}"
    if name == blind_controls.NAME:
        raise ValueError(f"a detector cannot be called {name}: that is the classifier that sees no model")
    try:
        parameters = json.loads(given)
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("parameters are no JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return name, REGISTRY[name].label(parameters)
    if not parameters:
        return name, canonical_json({})
    return f"{name} {', '.join(f'{key}={value}' for key, value in sorted(parameters.items()))}", canonical_json({})
