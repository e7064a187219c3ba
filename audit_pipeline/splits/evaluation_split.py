"""The evaluation split of one benchmark: its texts, and its assessment without a model.

The texts are sorted by group and id. The assessment consists of the blind control of words and the verdict. The control
is computed once per benchmark. Every evaluation of the benchmark, for any model, uses this result.
"""

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
from audit_pipeline.splits import blind_controls
from audit_pipeline.statistics.claims import ClaimLevel, SplitVerdict, decide_claim_level, decide_split_verdict
from audit_pipeline.statistics.intervals import Interval
from audit_pipeline.store.files import cast_to_columns, table_from_rows
from audit_pipeline.tables import BLIND_SCORES, EXAMPLES, MEMBER, NON_MEMBER, digest

SIDES: Mapping[int | None, str] = {MEMBER: "members", NON_MEMBER: "nonmembers", None: "unlabelled"}
MEMBERS = SIDES[MEMBER]
NONMEMBERS = SIDES[NON_MEMBER]
UNDATED = "undated"

_MAX_MONTHS = 36


def group_places_by_side(labels: Iterable[int | None]) -> dict[str, list[int]]:
    """Return the positions of the texts of each side, in order. The result omits sides without texts."""
    positions: dict[str, list[int]] = {}
    for side in SIDES.values():
        positions[side] = []
    for position, label in enumerate(labels):
        positions[SIDES[label]].append(position)
    for side in SIDES.values():
        if not positions[side]:
            del positions[side]
    return positions


def compute_shares(values: Iterable[str]) -> dict[str, tuple[int, float]]:
    """Return the count of each value and its share of all values, sorted by value."""
    counts = Counter(values)
    total = counts.total()
    return {name: (counts[name], counts[name] / total) for name in sorted(counts)}


def bin_dates(dates: Iterable[date | None]) -> tuple[str, list[str]]:
    """Return the unit of the bins (`month` or `year`) and the bin of each date.

    The unit is the month if all dates lie within three years, so that a chart has few bars. Bins look like `2024-03`
    or `2024`. The bin of a missing date is `undated`.
    """
    days = list(dates)
    known = list(filter(None, days))
    earliest = min(known, default=date.min)
    latest = max(known, default=date.max)
    n_months = (latest.year - earliest.year) * 12 + latest.month - earliest.month + 1
    unit = "year"
    date_format = "%Y"
    if n_months <= _MAX_MONTHS:
        unit = "month"
        date_format = "%Y-%m"
    bins = []
    for day in days:
        bins.append(UNDATED if day is None else day.strftime(date_format))
    return unit, bins


@dataclass(frozen=True, eq=False)
class LabelledExamples:
    """The labelled examples of the evaluation split, sorted by group and id.

    Each field has one entry per example.
    """

    example_ids: list[str]
    texts: list[str]
    labels: npt.NDArray[np.int8]
    groups: list[str]

    def __len__(self) -> int:
        return len(self.example_ids)


def read_examples(examples: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return some columns of ``examples`` (schema EXAMPLES), sorted by group and id.

    Raises:
        DataError: If a column is missing, a required value is null, an example_id occurs twice, or a label is not
            0, 1 or null.
    """
    present = [name for name in names if name in examples.column_names]
    schema = pa.schema(list(map(EXAMPLES.field, names)))
    table = cast_to_columns(examples.select(present), schema)
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark. Build the benchmark again.")
    if not set(pc.unique(table["label"]).to_pylist()) <= set(SIDES):
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null. Build the benchmark again.")
    return table.sort_by([("group", "ascending"), ("example_id", "ascending")])


def select_labelled_examples(examples: pa.Table) -> LabelledExamples:
    """Return the labelled examples of the evaluation split.

    Raises:
        DataError: In the cases of :func:`read_examples`.
    """
    table = read_examples(examples, ("example_id", "text", "label", "split", "group"))
    table = table.filter(pc.and_(pc.equal(table["split"], "evaluation"), pc.is_valid(table["label"])))
    labels = np.asarray(table["label"].to_numpy(), dtype=np.int8)
    return LabelledExamples(
        table["example_id"].to_pylist(), table["text"].to_pylist(), labels, table["group"].to_pylist()
    )


@dataclass(frozen=True, eq=False)
class EvaluationTexts:
    """The texts of the evaluation split of one benchmark, sorted by group and id.

    Attributes:
        benchmark: The name of the benchmark.
        table: The texts, with columns of EXAMPLES.
        sides: The positions of the texts of each side.
        split: A function that splits a text into words.
    """

    benchmark: str
    table: pa.Table
    sides: Mapping[str, list[int]]
    split: Callable[[str], list[str]]

    @cached_property
    def words(self) -> list[list[str]]:
        """Return the words of each text in lower case.

        The result is cached because several measures read it and jieba is slow.
        """
        return [self.split(str(text).lower()) for text in self.get_values("text")]

    def get_values(self, name: str) -> list[Any]:
        """Return the values of a column, one per text.

        The result is not cached, because the values of all texts of a large benchmark take much memory.
        """
        return list(self.table[name].to_pylist())

    def get_strings(self, name: str, places: Sequence[int]) -> list[str]:
        """Return the values of a column at some positions, as strings."""
        values = self.get_values(name)
        return [str(values[place]) for place in places]

    def list_words(self, places: Sequence[int]) -> list[list[str]]:
        """Return the words of the texts at some positions."""
        return [self.words[place] for place in places]

    def count_words(self, places: Sequence[int]) -> list[int]:
        """Return the number of words of each text at some positions."""
        return list(map(len, self.list_words(places)))

    @property
    def labelled_places(self) -> list[int]:
        """Return the positions of the members and the non-members, in order."""
        return sorted([*self.sides.get(MEMBERS, []), *self.sides.get(NONMEMBERS, [])])

    @property
    def reason_not_comparable(self) -> str | None:
        """Return the reason why the sides cannot be compared, or None if both sides have texts."""
        empty_sides = [name for name in (MEMBERS, NONMEMBERS) if name not in self.sides]
        if not empty_sides:
            return None
        return f"not defined: the evaluation split contains no {' and no '.join(empty_sides)}"

    def sample(self, max_per_side: int) -> tuple[EvaluationTexts, dict[str, int]]:
        """Sample at most ``max_per_side`` texts of each side by a hash of their ids.

        Returns:
            The sampled texts, and for each side that was reduced its original number of texts.
        """
        ids = self.get_values("example_id")
        chosen: list[int] = []
        full_counts: dict[str, int] = {}
        for side, places in self.sides.items():
            if len(places) > max_per_side:
                chosen += sorted(places, key=lambda place: digest(0, "sample", ids[place]))[:max_per_side]
                full_counts[side] = len(places)
            else:
                chosen += places
        if not full_counts:
            return self, {}
        chosen.sort()
        table = self.table.take(chosen)
        sides = group_places_by_side(table["label"].to_pylist())
        return EvaluationTexts(self.benchmark, table, sides, self.split), full_counts


def select_evaluation_texts(examples: pa.Table, split: Callable[[str], list[str]]) -> EvaluationTexts:
    """Return the texts of the evaluation split of one benchmark.

    Args:
        examples: The examples of the benchmark (schema EXAMPLES).
        split: A function that splits a text into words.

    Raises:
        DataError: In the cases of :func:`read_examples`, and if the examples belong to no benchmark or to several.
    """
    names = ["example_id", "benchmark", "text", "label", "split", "published", "language", "collection", "group"]
    table = read_examples(examples, names)
    benchmarks = pc.unique(table["benchmark"]).to_pylist()
    if len(benchmarks) != 1:
        raise DataError(
            f"the examples belong to {len(benchmarks)} benchmarks. Pass the examples of exactly one benchmark."
        )
    table = table.filter(pc.equal(table["split"], "evaluation")).drop_columns(["benchmark", "split"])
    return EvaluationTexts(benchmarks[0], table, group_places_by_side(table["label"].to_pylist()), split)


MEASURE = "blind_auroc"
"""The measure in split_quality for the AUROC of one blind control."""
WORST = "worst_blind_auroc"
"""The measure in split_quality for the highest AUROC of the blind controls."""


@dataclass(frozen=True, eq=False)
class AssessedSplit:
    """The blind control of words of one benchmark, and the verdict that follows from it.

    Attributes:
        design: The way in which members and non-members were obtained, such as temporal.
        matched: True if the sides were chosen to be hard to separate.
        verdict: The verdict on the split, from the design and the control.
        auroc: The AUROC of the control.
        control: One score for each of ``example_ids``, or no scores and the reason.
        example_ids: The ids of the labelled examples.
    """

    design: str
    matched: bool
    verdict: SplitVerdict
    auroc: blind_controls.ControlAuroc
    control: blind_controls.BlindControl
    example_ids: Sequence[str]

    @property
    def claim_level(self) -> ClaimLevel:
        """Return the strongest claim that the benchmark allows."""
        return decide_claim_level(self.design, self.verdict)

    def align_control(self, example_ids: Sequence[str]) -> blind_controls.BlindControl:
        """Return the control with its scores in the order of ``example_ids``.

        Raises:
            DataError: If the control has scores for other examples than ``example_ids``.
        """
        if self.control.scores is None:
            return self.control
        positions = pc.index_in(pa.array(example_ids, pa.string()), value_set=pa.array(self.example_ids, pa.string()))
        if positions.null_count or len(positions) != len(self.example_ids):
            raise DataError(
                f"the blind control has scores for {len(self.example_ids)} texts, but other texts are evaluated. "
                "Assess the split again."
            )
        return blind_controls.BlindControl(self.control.scores[positions.to_numpy()], None, self.control.method)

    def build_scores_table(self, benchmark: str, run_id: str) -> pa.Table:
        """Return the control's scores (schema BLIND_SCORES). The table is empty if the control was not computed."""
        if self.control.scores is None:
            return table_from_rows([], BLIND_SCORES)
        n = len(self.example_ids)
        columns = {
            "benchmark": pa.repeat(benchmark, n),
            "example_id": pa.array(self.example_ids, pa.string()),
            "score": pa.array(self.control.scores),
            "method": pa.repeat(self.control.method, n),
            "run_id": pa.repeat(run_id, n),
        }
        return cast_to_columns(pa.table(columns), BLIND_SCORES)


def compute_assessed_split(
    examples: pa.Table, design: str, language: str, *, matched: bool = False, seed: int = 0
) -> AssessedSplit:
    """Compute the blind control on all labelled examples of the evaluation split.

    Args:
        examples: The examples of one benchmark (schema EXAMPLES).
        design: The way in which members and non-members were obtained, such as temporal.
        language: The language of the texts (ISO 639-1).
        matched: True if the sides were chosen to be hard to separate.
        seed: The seed of the folds.

    Raises:
        DataError: In the cases of :func:`select_labelled_examples`.
        ConfigError: If the design is unknown.
    """
    labelled = select_labelled_examples(examples)
    control = blind_controls.compute_blind_control(
        labelled.example_ids, labelled.texts, labelled.labels, labelled.groups, language=language, seed=seed
    )
    (auroc,) = blind_controls.measure_controls({blind_controls.WORDS: control}, labelled.labels, labelled.groups)
    verdict = decide_split_verdict(design, auroc.interval, matched=matched)
    return AssessedSplit(design, matched, verdict, auroc, control, labelled.example_ids)


def build_assessed_split_from_tables(design: str, matched: bool, quality: pa.Table, scores: pa.Table) -> AssessedSplit:
    """Build the assessment from its stored tables (schemas SPLIT_QUALITY and BLIND_SCORES)."""
    (row,) = (row for row in quality.to_pylist() if row["measure"] == MEASURE and row["part"] == blind_controls.WORDS)
    auroc = blind_controls.ControlAuroc(
        row["value"], Interval(row["ci_low"], row["ci_high"]), row["method"], blind_controls.WORDS, row["n"]
    )
    control = blind_controls.BlindControl(None, row["method"], row["method"])
    if len(scores):
        control = blind_controls.BlindControl(scores["score"].to_numpy(), None, scores["method"][0].as_py())
    return AssessedSplit(design, matched, row["split_verdict"], auroc, control, scores["example_id"].to_pylist())
