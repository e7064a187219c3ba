"""The texts of one benchmark's evaluation split: in one order, by side, and how the sides are made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.store.files import cast_to_columns
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, digest

SIDES: Mapping[int | None, str] = {MEMBER: "members", NON_MEMBER: "nonmembers", None: "unlabelled"}
UNDATED = "undated"

_MOST_MONTHS = 36


def group_places_by_side(labels: Iterable[int | None]) -> dict[str, list[int]]:
    """Return the positions of the texts of each side, in order; sides without a text are left out."""
    places: dict[str, list[int]] = {side: [] for side in SIDES.values()}
    for place, label in enumerate(labels):
        places[SIDES[label]].append(place)
    return {side: found for side, found in places.items() if found}


def compute_shares(values: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return how often each value occurs, and its share of all, by name."""
    counts = Counter(values)
    total = counts.total()
    return {name: (counts[name], counts[name] / total) for name in sorted(counts)}


def bin_dates(dates: Iterable[date | None]) -> tuple[str, list[str]]:
    """The unit, and the bin of each date: `2024-03` where all lie within three years, else `2024`, so that a reader can
    distinguish the bars; `undated` without a date."""
    days = list(dates)
    known = [day for day in days if day is not None]
    first, last = min(known, default=date.min), max(known, default=date.max)
    months = (last.year - first.year) * 12 + last.month - first.month + 1
    unit, form = ("month", "%Y-%m") if months <= _MOST_MONTHS else ("year", "%Y")
    return unit, [UNDATED if day is None else day.strftime(form) for day in days]


@dataclass(frozen=True, eq=False)
class LabelledExamples:
    """The labelled examples of the evaluation split, by group and id: [n] each."""

    example_ids: list[str]
    texts: list[str]
    labels: npt.NDArray[np.int8]
    groups: list[str]

    def __len__(self) -> int:
        return len(self.example_ids)


def read_examples(examples: pa.Table, names: Sequence[str]) -> pa.Table:
    """These columns of ``examples`` (schema EXAMPLES), by group and id.

    Raises DataError for a missing column, a null where there may be none, an example_id that occurs twice, and a label
    other than 0, 1 and null.
    """
    table = cast_to_columns(
        examples.select([name for name in names if name in examples.column_names]),
        pa.schema([EXAMPLES.field(name) for name in names]),
    )
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark: build the benchmark again")
    if not set(pc.unique(table["label"]).to_pylist()) <= set(SIDES):
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null: build the benchmark again")
    return table.sort_by([("group", "ascending"), ("example_id", "ascending")])


def select_labelled_examples(examples: pa.Table) -> LabelledExamples:
    """Return the examples of the evaluation split that have a label; raises DataError as :func:`read_examples` does."""
    table = read_examples(examples, ("example_id", "text", "label", "split", "group"))
    table = table.filter(pc.and_(pc.equal(table["split"], "evaluation"), pc.is_valid(table["label"])))
    labels = np.asarray(table["label"].to_numpy(), dtype=np.int8)
    ids, texts, groups = (table[name].to_pylist() for name in ("example_id", "text", "group"))
    return LabelledExamples(ids, texts, labels, groups)


MEMBERS, NONMEMBERS = SIDES[MEMBER], SIDES[NON_MEMBER]


@dataclass(frozen=True, eq=False)
class EvaluationTexts:
    """The texts of the evaluation split by group and id: [n] each; ``sides`` are the positions of each side's."""

    benchmark: str
    columns: Mapping[str, list[Any]]
    sides: Mapping[str, list[int]]
    split: Callable[[str], list[str]]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each text in lower case, taken apart once for all that needs them: jieba is slow."""
        return [self.split(str(text).lower()) for text in self.columns["text"]]

    def strings(self, name: str, places: Sequence[int]) -> list[str]:
        """Return the values of a column at these positions, as text."""
        column = self.columns[name]
        return [str(column[place]) for place in places]

    def word_counts(self, places: Sequence[int]) -> list[int]:
        """Return how many words each of the texts at these positions has."""
        return [len(self.words[place]) for place in places]

    @property
    def labelled_places(self) -> list[int]:
        """The positions of the members and the non-members, in order."""
        return sorted([*self.sides.get(MEMBERS, []), *self.sides.get(NONMEMBERS, [])])

    @property
    def why_not_comparable(self) -> str | None:
        """Why the sides cannot be compared."""
        absent = [name for name in (MEMBERS, NONMEMBERS) if name not in self.sides]
        there_are_none = " and no ".join(absent)
        return f"not defined: the evaluation split holds no {there_are_none}" if absent else None

    def sample(self, max_per_side: int) -> tuple[EvaluationTexts, str]:
        """At most ``max_per_side`` texts of each side, drawn by a hash, and which, in words; "" where all are."""
        ids = self.columns["example_id"]
        chosen: list[int] = []
        drawn = []
        for side, places in self.sides.items():
            if len(places) > max_per_side:
                chosen += sorted(places, key=lambda place: digest(0, "sample", ids[place]))[:max_per_side]
                drawn.append(f"{max_per_side} of {len(places)} {side}")
            else:
                chosen += places
        if not drawn:
            return self, ""
        chosen.sort()
        columns = {name: [column[place] for place in chosen] for name, column in self.columns.items()}
        sample = EvaluationTexts(self.benchmark, columns, group_places_by_side(columns["label"]), self.split)
        return sample, f"read on {' and '.join(drawn)}, drawn at random (seed 0)"


def select_evaluation_texts(examples: pa.Table, split: Callable[[str], list[str]]) -> EvaluationTexts:
    """The texts of the evaluation split of one benchmark's ``examples`` (schema EXAMPLES); ``split`` gives words.

    Raises DataError as :func:`read_examples` does, and for examples of no benchmark or of several.
    """
    names = ["example_id", "benchmark", "text", "label", "split", "published", "language", "collection", "group"]
    table = read_examples(examples, names)
    benchmarks = pc.unique(table["benchmark"]).to_pylist()
    if len(benchmarks) != 1:
        raise DataError(f"the quality of a split is that of one benchmark's examples, not of {len(benchmarks)}")
    table = table.filter(pc.equal(table["split"], "evaluation"))
    columns = {name: table[name].to_pylist() for name in names if name not in ("benchmark", "split")}
    return EvaluationTexts(benchmarks[0], columns, group_places_by_side(columns["label"]), split)
