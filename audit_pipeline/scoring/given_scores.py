"""A table of scores that a user hands over, made into the tables that findings are drawn from.

What belongs here: which columns there may be, what they mean, which rows cannot be used. What does not: statistics
(evidence/findings.py), writing and publishing (operate/evaluate_file.py).

What is said of a row that cannot be used never quotes it: with shifted columns any cell may hold a text. Only labels
that are not understood are reported as they are spelt, cut (fetch/labels.py).

One row per text and detector. Columns: ``score``; ``label`` (1 member, 0 non-member, empty: unknown); and where there
are some, ``group`` (the book or document that a text is of; without it every text stands alone), ``detector``,
``parameters``, ``example_id``, ``split`` (calibration | evaluation), ``collection``, ``text``, ``published``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from audit_pipeline.benchmarks.splits import Placed, split_groups
from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, SCORES, Pair, Split, canonical_json, digest
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.detectors.registry import REGISTRY, is_default
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.labels import LabelReader, SpellingError, label_of
from audit_pipeline.fetch.read import read_rows
from audit_pipeline.fetch.rows import Row, Skipped
from audit_pipeline.separability import blind_control

ONE_DETECTOR = "score"
COLLECTION = "given"
NO_SCORE = "the file has no score of the text"
NAN = "the score is not a number (NaN)"
_LARGEST = 1e100
"""Beyond it sums of squares are no numbers any more: such a score is taken as infinite."""
_IDS = ("example_id", "example_index")


@dataclass(frozen=True, eq=False)
class GivenScores:
    """The tables (schemas SCORES and EXAMPLES), and what had to be left out or taken as given.

    ``left_out`` counts rows by the reason why they, or their scores, could not be used; ``notes`` are sentences for
    people. ``has_text``: whether a blind control can be read. ``names_splits``: whether the file says which texts
    calibrate.
    """

    scores: pa.Table
    examples: pa.Table
    skipped: tuple[Skipped, ...]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    has_text: bool
    names_splits: bool


@dataclass
class _Text:
    """One text of the file: what its rows say of it, which must be the same in all of them."""

    identity: str
    label: int | None
    group: str
    collection: str
    split: Split | None
    published: date | None
    text: str
    location: str


def read_given(file: Path, pair: Pair, run_id: str, *, calibration: float, seed: int, language: str) -> GivenScores:
    """Read ``file`` (of a format of fetch/read.py) as the scores of ``pair``.

    Where there is no column ``split``, about the share ``calibration`` of the labelled texts of each side, by group,
    calibrates; all of them do where none is a member. Which ones depends on the texts' ids and groups and on ``seed``,
    and on no name. An infinite score is placed beyond the largest or smallest of its detector's finite ones. Rows that
    cannot be used are returned in ``skipped``. Raises DataError for a file without the columns score and label, without
    a usable row, with a text that is scored twice by a detector, or whose rows contradict each other.
    """
    found = read_rows(file)
    rows, skipped = list(found.rows), list(found.skipped)
    columns = {name for row in rows for name in row.values}
    for needed in ("score", "label"):
        if needed not in columns:
            raise DataError(f"{file}: there is no column '{needed}'; it has: {', '.join(sorted(columns)) or 'no row'}")
    identities = _identities(rows, columns, file)
    texts: dict[str, _Text] = {}
    scored: _Scored = {}
    labels = LabelReader()
    for row, identity in zip(rows, identities, strict=True):
        try:
            text = _text(row, identity, columns)
            score, problem = _score(row)
            detector, parameters = _detector(row)
        except ValueError as error:
            if isinstance(error, SpellingError):
                labels.note(row.values.get("label"))
            skipped.append(Skipped(row.location, row.index, str(error)))
            continue
        _agree(texts.setdefault(identity, text), text)
        if (identity, detector, parameters) in scored:
            raise DataError(f"{row.location}: {detector} scores the text {identity} a second time; keep one score")
        scored[identity, detector, parameters] = score, problem
    spellings = labels.in_words("their rows left out")
    notes = [spellings] if spellings is not None else []
    if not any(score is not None for score, _ in scored.values()):
        reasons = Counter(one.reason for one in skipped) + Counter(one for _, one in scored.values() if one is not None)
        why = "".join(f"; {rows:,} × {reason}" for reason, rows in reasons.items())
        raise DataError(f"{file}: no row has a score and a label{why}{''.join(f'; {note}' for note in notes)}")
    scored, placed = _placed(scored)
    notes += [placed] if placed else []
    if "group" not in columns:
        notes.append("there is no column 'group': every text was taken to be independent of all others")
    has_text = any(text.text for text in texts.values())
    if not has_text:
        notes.append("there is no column 'text': the blind control, which needs the texts, was not computed")
    left_out = Counter(one.reason for one in skipped)
    left_out.update(problem for _, problem in scored.values() if problem is not None)
    splits = _splits(list(texts.values()), calibration, seed)
    return GivenScores(
        scores=table_from_rows(
            (
                {
                    "example_id": identity,
                    "model": pair.model,
                    "benchmark": pair.benchmark,
                    "detector": detector,
                    "parameters": parameters,
                    "is_default": is_default(detector, parameters),
                    "score": score,
                    "status": "ok" if score is not None else "failed",
                    "reason": problem,
                    "run_id": run_id,
                }
                for (identity, detector, parameters), (score, problem) in scored.items()
            ),
            SCORES,
        ),
        examples=table_from_rows(
            (_example(text, splits[text.group], pair.benchmark, language, run_id) for text in texts.values()), EXAMPLES
        ),
        skipped=tuple(skipped),
        left_out=dict(sorted(left_out.items())),
        notes=tuple(notes),
        has_text=has_text,
        names_splits=any(text.split is not None for text in texts.values()),
    )


_Scored = dict[tuple[str, str, str], tuple[float | None, str | None]]
"""By text, detector and parameters: the score, or why there is none."""


def _placed(scored: _Scored) -> tuple[_Scored, str | None]:
    """The scores with the infinite ones beyond the finite ones of their detector, and how many there were, in words."""
    known: dict[tuple[str, str], list[float]] = {}
    for (_, *setting), (score, _) in scored.items():
        if score is not None and math.isfinite(score):
            known.setdefault((setting[0], setting[1]), []).append(score)
    ends = {setting: _ends(finite) for setting, finite in known.items()}
    placed: _Scored = {}
    infinite = 0
    for (identity, *setting), (score, problem) in scored.items():
        key = (identity, setting[0], setting[1])
        if score is None or math.isfinite(score):
            placed[key] = score, problem
        else:
            infinite += 1
            placed[key] = ends.get((setting[0], setting[1]), (-1.0, 1.0))[score > 0], None
    if not infinite:
        return scored, None
    return placed, (
        f"{infinite} infinite score{'s were' if infinite > 1 else ' was'} placed beyond the largest or smallest finite "
        "one of the detector: their order counts, not their size"
    )


def _ends(finite: Sequence[float]) -> tuple[float, float]:
    """Where minus infinity and infinity are placed: a mean gap beyond the finite scores, at least the next float."""
    low, high = min(finite), max(finite)
    gap = (high - low) / len(finite) or 1.0
    return min(low - gap, math.nextafter(low, -math.inf)), max(high + gap, math.nextafter(high, math.inf))


def _identities(rows: Sequence[Row], columns: set[str], file: Path) -> list[str]:
    """The text of each row: by its id; without ids, the n-th row of each detector is the n-th text."""
    column = next((name for name in _IDS if name in columns), None)
    if column is not None:
        return [_plain(row.values.get(column)) for row in rows]
    counted: dict[str, int] = {}
    identities = []
    for row in rows:
        detector = _plain(row.values.get("detector")) + _plain(row.values.get("parameters"))
        counted[detector] = counted.get(detector, -1) + 1
        identities.append(f"{counted[detector]:07d}")
    if len(set(counted.values())) > 1:
        raise DataError(
            f"{file}: the detectors have unequally many rows and there is no column 'example_id', so nothing says "
            "which rows are of one text; add it"
        )
    return identities


def _text(row: Row, identity: str, columns: set[str]) -> _Text:
    if not identity:
        raise ValueError("the row has no example_id")
    label = label_of(row.values.get("label"))
    split = _plain(row.values.get("split"))
    if split not in ("", "calibration", "evaluation"):
        raise ValueError("split is neither calibration nor evaluation")
    group = _plain(row.values.get("group"))
    if "group" in columns and not group:
        raise ValueError("the row has no group")
    return _Text(
        identity,
        label,
        group or identity,
        _plain(row.values.get("collection")) or COLLECTION,
        "calibration" if split == "calibration" else "evaluation" if split else None,
        _day(row.values.get("published")),
        _plain(row.values.get("text")),
        row.location,
    )


def _score(row: Row) -> tuple[float | None, str | None]:
    """The score, infinite where it is too large, or why there is none: an empty cell is a text that was not scored."""
    value = row.values.get("score")
    if isinstance(value, float) and math.isnan(value):
        return None, NAN
    if _plain(value) == "":
        return None, NO_SCORE
    try:
        score = float(_plain(value))
    except ValueError:
        raise ValueError("score is no number") from None
    if math.isnan(score):
        return None, NAN
    return (score if abs(score) <= _LARGEST else math.copysign(math.inf, score)), None


def _detector(row: Row) -> tuple[str, str]:
    """Detector and parameters as the registry writes them; one that it does not know is a detector by both together."""
    given = row.values.get("parameters")
    written = json.dumps(given) if isinstance(given, dict) else _plain(given)
    return _as_registered(_plain(row.values.get("detector")) or ONE_DETECTOR, written or "{}")


@cache
def _as_registered(name: str, written: str) -> tuple[str, str]:
    """A detector by its name and its parameters as JSON; what is not said of a detector of ours is at its default."""
    if name == blind_control.NAME:
        raise ValueError(f"a detector cannot be called {name}: that is the classifier that sees no model")
    try:
        parameters = json.loads(written)
    except ValueError:
        parameters = None
    if not isinstance(parameters, dict):
        raise ValueError("parameters are no JSON object")
    if name in REGISTRY and set(parameters) <= set(REGISTRY[name].parameters):
        return name, canonical_json({**REGISTRY[name].default, **parameters})
    if not parameters:
        return name, canonical_json({})
    return f"{name} {', '.join(f'{key}={value}' for key, value in sorted(parameters.items()))}", canonical_json({})


def _agree(first: _Text, other: _Text) -> None:
    """Raise DataError where two rows of one text say different things of it."""
    for name in ("label", "group", "collection", "split"):
        if getattr(first, name) != getattr(other, name):
            raise DataError(
                f"{other.location}: the {name} of the text {other.identity} is {getattr(other, name)!r}, at "
                f"{first.location} it is {getattr(first, name)!r}; make them the same"
            )


def _splits(texts: Sequence[_Text], calibration: float, seed: int) -> dict[str, Split]:
    """The split of every group. Texts of unknown label are audited, so their groups are never for calibration.

    It is drawn by what the texts are, not by what anything is called: the same rows have the same split.
    """
    fixed: dict[str, Split] = {}
    for text in texts:
        split = text.split
        if split is not None and fixed.setdefault(text.group, split) != split:
            raise DataError(f"{text.location}: the group {text.group} is in both splits; a group must not be divided")
    if fixed:
        return {text.group: fixed.get(text.group, "evaluation") for text in texts}
    audited = {text.group for text in texts if text.label is None}
    known = [text for text in texts if text.group not in audited]
    if audited and not any(text.label == MEMBER for text in known):
        return {text.group: "evaluation" if text.group in audited else "calibration" for text in texts}
    placed = (Placed(text.group, text.collection, text.label) for text in known)
    content = digest(sorted((text.identity, text.group) for text in texts))
    splits = split_groups(placed, fraction=calibration, seed=seed, family=content)
    return {text.group: splits.get(text.group, "evaluation") for text in texts}


def _example(text: _Text, split: Split, benchmark: str, language: str, run_id: str) -> dict[str, Any]:
    return {
        "example_id": text.identity,
        "benchmark": benchmark,
        "document_id": text.identity,
        "text": text.text,
        "context": None,
        "label": text.label,
        "split": split,
        "published": text.published,
        "words": len(text.text.split()),
        "language": language,
        "collection": text.collection,
        "group": text.group,
        "run_id": run_id,
    }


def _plain(value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(value).strip()


def _day(value: object) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    text = _plain(value)
    try:
        return date.fromisoformat(text[:10]) if text else None
    except ValueError:
        raise ValueError("published is no date (2024-05-31)") from None
