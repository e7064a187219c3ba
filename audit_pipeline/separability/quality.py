"""The quality of a split as one table: how far members and non-members differ in anything but membership.

What belongs here: which measures are read on which texts, the table of them all, and a short summary. What does not:
each measure's rows (compared_rows.py, described_rows.py), the verdict (assessed.py), and where the table is written. No
model's scores are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from audit_pipeline.catalogue.contracts import SPLIT_QUALITY
from audit_pipeline.catalogue.tables import table_from_rows
from audit_pipeline.metrics.claims import VERDICT_IN_WORDS, SplitVerdict
from audit_pipeline.metrics.intervals import RESAMPLES
from audit_pipeline.separability.assessed import AssessedSplit
from audit_pipeline.separability.blind_controls import CHARACTERS, ControlAuroc, worst
from audit_pipeline.separability.compared_rows import (
    control_rows,
    measured_controls,
    near_duplicate_rows,
    overlap_rows,
)
from audit_pipeline.separability.described_rows import (
    balance_rows,
    language_rows,
    length_rows,
    mention_rows,
    published_rows,
)
from audit_pipeline.separability.histograms import SIDES
from audit_pipeline.separability.overlap import SIZES
from audit_pipeline.separability.quality_row import BETWEEN, BOTH, QualityRow
from audit_pipeline.separability.split_texts import NONMEMBERS, evaluation_texts

MOST_PER_SIDE = 1000
"""Texts of a side that are read, at most, by all but the blind control of words: 2,000 of 128 words take 15 s on one
core."""


@dataclass(frozen=True, eq=False)
class Quality:
    """What is known of a split without any model.

    ``table`` has the columns of SPLIT_QUALITY. ``verdict`` is that of the blind control of words; ``worst`` is the
    control with the highest AUROC, None where none was read. ``summary`` is a handful of values by name, for metadata.
    """

    table: pa.Table
    verdict: SplitVerdict
    worst: ControlAuroc | None
    summary: Mapping[str, str | int | float | None]


def split_quality(
    examples: pa.Table,
    assessed: AssessedSplit,
    language: str,
    split: Callable[[str], list[str]] = str.split,
    seed: int = 0,
    resamples: int = RESAMPLES,
    near_duplicate_threshold: float = 0.5,
    *,
    run_id: str,
    most_per_side: int = MOST_PER_SIDE,
) -> Quality:
    """The quality of the evaluation split of one benchmark's ``examples`` (schema EXAMPLES).

    ``assessed`` is the blind control of words on these examples, ``language`` (ISO 639-1) theirs, ``split`` gives a
    text's words in the benchmark's unit. Members and non-members are compared where there are both; what cannot be
    measured is null, with the reason in ``method``. Of a side of more than ``most_per_side`` texts so many are read,
    drawn at random, and ``method`` says so; the control of words reads all, and texts, groups, collections and dates
    are counted of all. The result depends on the examples and on ``seed``, not on the order of rows.

    Raises DataError for examples of no benchmark or of several, a missing column, a label other than 0, 1 and null, and
    an example_id that stands twice; ValueError for a threshold outside (0, 1] or no text a side.
    """
    if most_per_side < 1:
        raise ValueError(f"at least one text of a side is read, not {most_per_side}")
    everything = evaluation_texts(examples, split)
    texts, sampled = everything.sample(most_per_side, seed)
    others = [_note_sample(one, sampled) for one in measured_controls(texts, language, seed, resamples)]
    # In a script without blanks between words the control of words reads characters.
    characters = [] if any(other.name == CHARACTERS for other in others) else [replace(assessed.auroc, name=CHARACTERS)]
    controls = [assessed.auroc, *characters, *others]
    strongest = worst(controls)
    read = [
        *overlap_rows(texts),
        *near_duplicate_rows(texts, near_duplicate_threshold),
        *mention_rows(texts),
        *length_rows(texts),
        *language_rows(texts),
    ]
    rows = [
        *control_rows(controls, strongest, assessed),
        *(_note_sample(row, sampled) for row in read),
        *balance_rows(everything),
        *published_rows(everything),
    ]
    same = {"benchmark": texts.benchmark, "split_verdict": assessed.verdict, "run_id": run_id}
    table = table_from_rows([{**same, **row.columns} for row in rows], SPLIT_QUALITY)
    return Quality(table, assessed.verdict, strongest, _summary(rows, assessed, strongest))


_Read = TypeVar("_Read", ControlAuroc, QualityRow)


def _note_sample(found: _Read, sampled: str) -> _Read:
    """What was found on a sample, with ``sampled`` in its method; as it is where that is empty."""
    return replace(found, method=f"{found.method}; {sampled}") if sampled else found


def _summary(
    rows: Sequence[QualityRow], assessed: AssessedSplit, strongest: ControlAuroc | None
) -> dict[str, str | int | float | None]:
    values = {(row.measure, row.part, row.side): row.value for row in rows}

    def value(measure: str, part: str, side: str) -> float | None:
        return values.get((measure, part, side))

    return {
        "split_verdict": assessed.verdict,
        "in_words": VERDICT_IN_WORDS[assessed.verdict],
        "blind_auroc": assessed.auroc.auroc,
        "blind_ci_low": assessed.auroc.interval.low,
        "blind_ci_high": assessed.auroc.interval.high,
        "blind_method": assessed.auroc.method,
        "worst_control": strongest.name if strongest else None,
        "worst_auroc": strongest.auroc if strongest else None,
        "worst_ci_low": strongest.interval.low if strongest else None,
        "worst_ci_high": strongest.interval.high if strongest else None,
        "near_duplicate_pairs_between": value("near_duplicate_pairs", "all", BETWEEN),
        **{f"overlap_{size}_mean": value("ngram_overlap_mean", str(size), NONMEMBERS) for size in SIZES},
        **{f"overlap_{size}_above_20": value("ngram_overlap_above_20", str(size), NONMEMBERS) for size in SIZES},
        "uneven_collections": value("uneven_collections", "all", BOTH),
        **{
            f"language_mismatch_{side}": value("language_mismatch", "all", side)
            for side in SIDES.values()
            if ("language_mismatch", "all", side) in values
        },
    }
