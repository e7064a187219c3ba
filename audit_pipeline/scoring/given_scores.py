"""A table of scores that a user hands over, made into the tables that findings are drawn from.

What belongs here: which texts calibrate, where infinite scores are placed, and the two tables. What does not: the
file's columns and which rows cannot be used (given_rows.py), statistics (evidence/findings.py), writing and publishing
(operate/evaluate_file.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.benchmarks.splits import Placed, split_groups
from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER, SCORES, Pair, Split, digest_of_items
from audit_pipeline.catalogue.files import checked
from audit_pipeline.catalogue.table import Table
from audit_pipeline.detectors.registry import is_default
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.group_rows import ALPHAS
from audit_pipeline.evidence.thresholds import marginal_needs
from audit_pipeline.fetch.rows import Skipped
from audit_pipeline.metrics.claims import FEW_TEXTS
from audit_pipeline.scoring.given_cells import PROBLEMS, InterpretedCells
from audit_pipeline.scoring.given_rows import GivenRows, Setting, Texts, read_given_rows
from audit_pipeline.separability.blind_controls import is_unspaced
from audit_pipeline.separability.shared_text import MOST_COMPARED, on_both_sides

_TEXTS_AT_ONCE = 4096
_NAMED = 3
_BOTH_SIDES = "the text stands on both sides"
NEAR_DUPLICATE = 0.5
"""As benchmarks have it where their entry says nothing."""


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


def read_given(file: Path, pair: Pair, run_id: str, *, calibration: float, seed: int, language: str) -> GivenScores:
    """Read ``file`` (of a format of fetch/formats.py) as the scores of ``pair``.

    Where there is no column ``split``, about the share ``calibration`` of the labelled texts of each side, by group,
    calibrates; all of them do where none is a member. Which ones depends on the texts' ids and groups and on ``seed``,
    and on no name. An infinite score is placed beyond the largest or smallest of its detector's finite ones. Rows that
    cannot be used are returned in ``skipped``. Raises DataError for a file without the columns score and label, without
    a usable row, with a text that is scored twice by a detector, or whose rows contradict each other. Texts that stand
    on both sides are left out and told of in ``notes``; where none is left that is a DataError, too.
    """
    rows = read_given_rows(file)
    contradicting = _on_both_sides(rows.texts, language)
    reasons, unscored = Counter(one.reason for one in rows.skipped), _problems_met(rows)
    notes = [rows.not_understood] if rows.not_understood is not None else []
    if np.all(rows.scores.problems):
        why = "".join(f"; {count:,} × {reason}" for reason, count in (reasons + unscored).items())
        raise DataError(f"{file}: no row has a score and a label{why}{''.join(f'; {note}' for note in notes)}")
    scores, placed = _placed(rows.scores.values, rows.settings)
    notes += [placed] if placed else []
    if "group" not in rows.columns:
        notes.append("there is no column 'group': every text was taken to be independent of all others")
    has_text = pc.any(pc.not_equal(rows.texts.texts, "")).as_py()
    if not has_text:
        notes.append("there is no column 'text': the blind control, which needs the texts, was not computed")
    if contradicting:
        notes.append(_contradiction(rows.texts, contradicting))
        reasons[_BOTH_SIDES] += int(np.isin(rows.of_text, contradicting).sum())
    if has_text and len(rows.texts) > MOST_COMPARED:
        notes.append(f"near-duplicates across the sides were not looked for: more than {MOST_COMPARED:,} texts")
    kept = np.setdiff1d(np.arange(len(rows.texts)), contradicting)
    if not len(kept):
        raise DataError(f"{file}: this comparison could not find anything: {_contradiction(rows.texts, contradicting)}")
    splits, set_apart = _splits(rows.texts, calibration, seed, set(contradicting))
    notes += [set_apart] if set_apart else []
    examples = _examples_table(rows.texts, splits, pair.benchmark, language, run_id).take(pa.array(kept))
    table = _scores_table(rows, scores, pair, run_id)
    return GivenScores(
        scores=table.filter(pc.is_in(table["example_id"], value_set=examples["example_id"].combine_chunks())),
        examples=examples,
        skipped=rows.skipped,
        left_out=dict(sorted((reasons + unscored).items())),
        notes=tuple(notes),
        has_text=has_text,
        names_splits=_names_splits(rows.texts),
    )


def _on_both_sides(texts: Texts, language: str) -> list[int]:
    """The places of the texts that stand on the other side, too."""
    split = list if is_unspaced(language) else str.split
    return on_both_sides(texts.texts.to_pylist(), texts.digests.to_pylist(), texts.labels.each(), NEAR_DUPLICATE, split)


def _contradiction(texts: Texts, places: Sequence[int]) -> str:
    """How many texts stand on both sides, and the first of them by where they are; a text is never quoted."""
    where = ", ".join(texts.locations[place].as_py() for place in places[:_NAMED])
    more = f" and {len(places) - _NAMED:,} more" if len(places) > _NAMED else ""
    return (
        f"{len(places):,} texts are on both sides, as member and as non-member (equal, or near-duplicates), so they "
        f"are left out: {where}{more}"
    )


def _problems_met(rows: GivenRows) -> Counter[str]:
    """How many usable rows have no score, by the reason, in the order in which the reasons are met."""
    codes, first, counts = np.unique(rows.scores.problems, return_index=True, return_counts=True)
    found = ((PROBLEMS[codes[place]], int(counts[place])) for place in np.argsort(first).tolist())
    return Counter({problem: count for problem, count in found if problem is not None})


def _placed(
    scores: npt.NDArray[np.float64], settings: InterpretedCells[Setting]
) -> tuple[npt.NDArray[np.float64], str | None]:
    """The scores with the infinite ones beyond the finite ones of their detector, and how many there were, in words."""
    infinite = np.isinf(scores)
    n_infinite = int(infinite.sum())
    if not n_infinite:
        return scores, None
    placed = scores.copy()
    for setting in np.unique(settings.codes[infinite]).tolist():
        own = settings.codes == setting
        low, high = _ends(scores[own & np.isfinite(scores)])
        placed[own & (scores == -np.inf)], placed[own & (scores == np.inf)] = low, high
    return placed, (
        f"{n_infinite} infinite score{'s were' if n_infinite > 1 else ' was'} placed beyond the largest or smallest "
        "finite one of the detector: their order counts, not their size"
    )


def _ends(finite: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Where minus infinity and infinity are placed: a mean gap beyond the finite scores, at least the next float."""
    if not len(finite):
        return -1.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    gap = (high - low) / len(finite) or 1.0
    return min(low - gap, math.nextafter(low, -math.inf)), max(high + gap, math.nextafter(high, math.inf))


def _names_splits(texts: Texts) -> bool:
    return any(texts.splits.values[code] is not None for code in np.unique(texts.splits.codes).tolist())


def _splits(
    texts: Texts, calibration: float, seed: int, left_out: Collection[int] = ()
) -> tuple[list[Split], str | None]:
    """The split of every text, and in words what was set apart. Texts of unknown label are audited, so their groups
    are never for calibration.

    It is drawn by what the texts are, not by what anything is called: the same rows have the same split. Where no text
    is audited, texts are set apart only where enough are left for both: thresholds need some groups of non-members, and
    an AUROC some groups of either side. ``left_out``: places that do not count.
    """
    groups, labels = texts.groups.codes, texts.labels.each()
    if _names_splits(texts):
        fixed = _fixed_splits(texts)
        return [fixed.get(group, "evaluation") for group in groups.tolist()], None
    audited = {group for group, label in zip(groups.tolist(), labels, strict=True) if label is None}
    known = [group not in audited for group in groups.tolist()]
    if audited and not any(label == MEMBER and one for label, one in zip(labels, known, strict=True)):
        return ["calibration" if one else "evaluation" for one in known], None
    if not audited and calibration and (lacking := _too_few_to_divide(texts, calibration, left_out)):
        return ["evaluation"] * len(labels), lacking
    names = texts.groups.strings().to_pylist()
    content = digest_of_items(sorted(zip(texts.ids.strings().to_pylist(), names, strict=True)))
    described = zip(names, texts.collections.each(), labels, known, strict=True)
    placed = (Placed(group, collection, label) for group, collection, label, one in described if one)
    splits = split_groups(placed, fraction=calibration, seed=seed, family=content)
    found: list[Split] = [splits.get(group, "evaluation") for group in names]
    apart = found.count("calibration")
    words = f"{apart:,} of {len(found):,} texts are set apart for calibration, so metrics are of the others"
    return found, words if apart else None


def _too_few_to_divide(texts: Texts, calibration: float, left_out: Collection[int]) -> str | None:
    """Why nothing is set apart for calibration; None where enough groups of each side are left for both."""
    sides: dict[int | None, set[int]] = {MEMBER: set(), NON_MEMBER: set()}
    for place, (group, label) in enumerate(zip(texts.groups.codes.tolist(), texts.labels.each(), strict=True)):
        if place not in left_out:
            sides[label].add(group)
    members, nonmembers = len(sides[MEMBER]), len(sides[NON_MEMBER])
    thresholds = marginal_needs(max(ALPHAS))
    left = min(members, nonmembers) * (1 - calibration)
    if nonmembers * calibration >= thresholds and left >= FEW_TEXTS:
        return None
    return (
        f"nothing is set apart for calibration, so no threshold is chosen: of {members:,} groups of members and "
        f"{nonmembers:,} of non-members, thresholds need {thresholds} of non-members, and an AUROC {FEW_TEXTS} of "
        "either side"
    )


def _fixed_splits(texts: Texts) -> dict[int, Split]:
    """The splits that the file names, by the place of the group; raises DataError where a group is in both."""
    fixed: dict[int, Split] = {}
    for text, (group, split) in enumerate(zip(texts.groups.codes.tolist(), texts.splits.each(), strict=True)):
        if split is not None and fixed.setdefault(group, split) != split:
            raise DataError(
                f"{texts.locations[text].as_py()}: the group {texts.groups.at(text)} is in both splits; "
                "a group must not be divided"
            )
    return fixed


def _scores_table(rows: GivenRows, scores: npt.NDArray[np.float64], pair: Pair, run_id: str) -> pa.Table:
    settings = pa.array(rows.settings.codes)
    failed = rows.scores.problems != 0
    return _table(
        SCORES,
        {
            "example_id": rows.texts.ids.strings().take(pa.array(rows.of_text)),
            "model": pair.model,
            "benchmark": pair.benchmark,
            "detector": pa.array([detector for detector, _ in rows.settings.values]).take(settings),
            "parameters": pa.array([parameters for _, parameters in rows.settings.values]).take(settings),
            "is_default": pa.array(_defaults(rows.settings.values)).take(settings),
            "score": pa.array(scores, mask=failed),
            "status": pa.array(["ok", "failed"]).take(pa.array(failed.astype(np.int8))),
            "reason": pa.array(PROBLEMS, pa.string()).take(pa.array(rows.scores.problems)),
            "run_id": run_id,
        },
        len(scores),
    )


def _defaults(settings: Sequence[tuple[str, str]]) -> list[bool]:
    """Which of the settings, detector and parameters, are their detectors' defaults.

    One that its detector alone has is: there was nothing to choose from.
    """
    counted = Counter(detector for detector, _ in settings)
    return [counted[detector] == 1 or is_default(detector, parameters) for detector, parameters in settings]


def _examples_table(texts: Texts, splits: list[Split], benchmark: str, language: str, run_id: str) -> pa.Table:
    ids, cells = texts.ids.strings(), list(_iterate_string_arrays(texts.texts))
    return _table(
        EXAMPLES,
        {
            "example_id": ids,
            "benchmark": benchmark,
            "document_id": ids,
            "text": pa.chunked_array(cells, pa.string()),
            "context": pa.nulls(len(texts), pa.string()),
            "label": pa.array(texts.labels.values, pa.int8()).take(pa.array(texts.labels.codes)),
            "split": pa.array(splits, pa.string()),
            "published": pa.array(texts.published.values, pa.date32()).take(pa.array(texts.published.codes)),
            "words": pa.chunked_array([_words(some) for some in cells], pa.int32()),
            "language": language,
            "collection": pa.array(texts.collections.values, pa.string()).take(pa.array(texts.collections.codes)),
            "group": texts.groups.strings(),
            "run_id": run_id,
        },
        len(texts),
    )


def _iterate_string_arrays(texts: pa.ChunkedArray) -> Iterator[pa.StringArray]:
    """The texts in pieces: of all of them together an array of strings may be too small."""
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        yield from texts.slice(start, _TEXTS_AT_ONCE).cast(pa.string()).chunks


def _words(texts: pa.StringArray) -> pa.Array:
    counted = pc.list_value_length(pc.utf8_split_whitespace(texts))
    return pc.if_else(pc.equal(texts, ""), pa.scalar(0, pa.int32()), counted)


def _table(table: Table, columns: Mapping[str, pa.Array | pa.ChunkedArray | str], n: int) -> pa.Table:
    """Columns of n rows; a string stands in every row."""
    whole = {name: pa.repeat(cells, n) if isinstance(cells, str) else cells for name, cells in columns.items()}
    return checked(pa.table(whole), table)
