"""The texts of one benchmark's evaluation split, as the measures of a split's quality read them.

What belongs here: checking and ordering the examples, and drawing a sample of each side. What does not: measuring
anything on them (compared_rows.py, described_rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EXAMPLES, MEMBER, NON_MEMBER, digest
from audit_pipeline.catalogue.tables import checked
from audit_pipeline.errors import DataError
from audit_pipeline.separability.histograms import SIDES, by_side

MEMBERS, NONMEMBERS = SIDES[MEMBER], SIDES[NON_MEMBER]


@dataclass(frozen=True, eq=False)
class SplitTexts:
    """The texts of the evaluation split by group and id: [n] each; ``sides`` are the positions of each side's."""

    benchmark: str
    columns: Mapping[str, list[object]]
    sides: Mapping[str, list[int]]
    split: Callable[[str], list[str]]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each text in lower case, taken apart once for all that needs them: jieba is slow."""
        return [self.split(str(text).lower()) for text in self.columns["text"]]

    def of(self, name: str, places: Sequence[int]) -> list[object]:
        """The values of a column at these positions."""
        column = self.columns[name]
        return [column[place] for place in places]

    def strings(self, name: str, places: Sequence[int]) -> list[str]:
        """The values of a column at these positions, as text."""
        return [str(value) for value in self.of(name, places)]

    def word_counts(self, places: Sequence[int]) -> list[int]:
        """How many words each of the texts at these positions has."""
        return [len(self.words[place]) for place in places]

    @property
    def labelled(self) -> list[int]:
        """The positions of the members and the non-members, in order."""
        return sorted([*self.sides.get(MEMBERS, []), *self.sides.get(NONMEMBERS, [])])

    @property
    def missing(self) -> str | None:
        """Why the sides cannot be compared."""
        lacking = [name for name in (MEMBERS, NONMEMBERS) if name not in self.sides]
        there_are_none = " and no ".join(lacking)
        return f"not defined: the evaluation split holds no {there_are_none}" if lacking else None

    def sample(self, most: int, seed: int) -> tuple[SplitTexts, str]:
        """At most ``most`` texts of each side, drawn by ``seed``, and in words which; "" where these are all."""
        ids = self.columns["example_id"]
        kept: list[int] = []
        drawn = []
        for side, places in self.sides.items():
            if len(places) > most:
                kept += sorted(places, key=lambda place: digest(seed, "sample", ids[place]))[:most]
                drawn.append(f"{most} of {len(places)} {side}")
            else:
                kept += places
        if not drawn:
            return self, ""
        kept.sort()
        columns = {name: [column[place] for place in kept] for name, column in self.columns.items()}
        sample = SplitTexts(self.benchmark, columns, _sides_of(columns), self.split)
        return sample, f"read on {' and '.join(drawn)}, drawn at random (seed {seed})"


def evaluation_texts(examples: pa.Table, split: Callable[[str], list[str]]) -> SplitTexts:
    """The texts of the evaluation split of one benchmark's ``examples`` (schema EXAMPLES); ``split`` gives words.

    Raises DataError for examples of no benchmark or of several, a missing column, a label other than 0, 1 and null, and
    an example_id that stands twice.
    """
    names = ["example_id", "benchmark", "text", "label", "split", "published", "language", "collection", "group"]
    table = checked(
        examples.select([name for name in names if name in examples.column_names]),
        pa.schema([EXAMPLES.field(name) for name in names]),
    )
    benchmarks = pc.unique(table["benchmark"]).to_pylist()
    if len(benchmarks) != 1:
        raise DataError(f"the quality of a split is that of one benchmark's examples, not of {len(benchmarks)}")
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark: build the benchmark again")
    table = table.filter(pc.equal(table["split"], "evaluation"))
    table = table.sort_by([("group", "ascending"), ("example_id", "ascending")])
    columns = {name: table[name].to_pylist() for name in names}
    if not set(columns["label"]) <= set(SIDES):
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null: build the benchmark again")
    return SplitTexts(benchmarks[0], columns, _sides_of(columns), split)


def _sides_of(columns: Mapping[str, list[object]]) -> dict[str, list[int]]:
    return by_side(columns["label"])  # type: ignore[arg-type]
