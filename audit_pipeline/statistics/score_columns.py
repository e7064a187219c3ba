"""The two sides that are compared: which examples they are, and the scores of a detector with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits.evaluation_texts import LabelledExamples, select_labelled_examples
from audit_pipeline.statistics.roc import Bools, Floats, Places, RocPoints, explain_undefined, roc_points
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, Pair

IN_WORDS = "audited texts (membership unknown) are compared with held-out texts, the non-members"


def is_against_held_out(method: str | None) -> bool:
    """Return whether a metric's ``method`` says that it compares audited with held-out texts."""
    return (method or "").startswith(IN_WORDS)


def relabel_for_comparison(examples: pa.Table) -> pa.Table:
    """The examples (schema EXAMPLES) as audited against held-out: what is audited has label 1, what is held out 0.

    All of them are in the evaluation split then. The AUROC is how well the two are separated: .5 where the audited
    texts were read no more than the held-out ones, but for chance. Where some text to evaluate is labelled, or nothing
    is held out, the very ``examples``: there is nothing to rewrite.
    """
    evaluated = pc.equal(examples["split"], "evaluation")
    held_out = pc.fill_null(
        pc.and_(pc.equal(examples["split"], "calibration"), pc.equal(examples["label"], NON_MEMBER)), False
    )
    labelled = pc.any(pc.and_(evaluated, pc.is_valid(examples["label"]))).as_py()
    if labelled or not pc.any(held_out).as_py() or not pc.any(evaluated).as_py():
        return examples
    sides = [
        examples.filter(chosen)
        .set_column(EXAMPLES.names.index("label"), EXAMPLES.field("label"), pa.repeat(pa.scalar(label, pa.int8()), n))
        .set_column(EXAMPLES.names.index("split"), EXAMPLES.field("split"), pa.repeat("evaluation", n))
        for chosen, label in ((evaluated, MEMBER), (held_out, NON_MEMBER))
        for n in [pc.sum(chosen).as_py()]
    ]
    return pa.concat_tables(sides)


Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class ScoreColumn:
    """One detector's scores at one setting, of those n labelled examples that have one: [n] each array.

    ``scored`` says which of all labelled examples these are, and ``n_not_scored`` counts the others; ``is_default``:
    the headline setting.
    """

    detector: str
    parameters: str
    scores: Floats
    labels: npt.NDArray[np.int8]
    groups: list[str]
    scored: Bools
    n_not_scored: int
    is_default: bool

    @property
    def key(self) -> Key:
        return self.detector, self.parameters

    @property
    def members(self) -> Floats:
        """The members' scores, for histograms."""
        return np.asarray(self.scores[self.labels == MEMBER])

    @property
    def nonmembers(self) -> Floats:
        """The non-members' scores, for histograms."""
        return np.asarray(self.scores[self.labels == NON_MEMBER])

    def roc(self) -> RocPoints | None:
        """Return the ROC curve, for plots; None for one class only."""
        return None if explain_undefined(self.labels) else roc_points(self.scores, self.labels)


def build_score_columns(scores: pa.Table, examples: pa.Table, pair: Pair) -> list[ScoreColumn]:
    """The scores of a ``pair`` by detector and parameters, with their examples' labels.

    Sorted by detector and parameters. Raises DataError as :func:`iterate_settings` and
    :func:`select_labelled_examples` do.
    """
    labelled = select_labelled_examples(examples)
    columns = []
    for setting in iterate_settings(scores, examples["example_id"], pa.array(labelled.example_ids, pa.string()), pair):
        scored = np.zeros(len(labelled), dtype=np.bool_)
        scored[setting.places] = True
        columns.append(
            build_score_column(
                setting.detector, setting.parameters, setting.scores, scored, labelled, is_default=setting.is_default
            )
        )
    return columns


def build_score_column(
    detector: str, parameters: str, scores: Floats, scored_mask: Bools, examples: LabelledExamples, *, is_default: bool
) -> ScoreColumn:
    """Return the column of the ``scores`` [n] of those ``examples`` whose value in ``scored_mask`` is true."""
    groups = [group for group, is_scored in zip(examples.groups, scored_mask, strict=True) if is_scored]
    not_scored = len(examples) - int(scored_mask.sum())
    return ScoreColumn(
        detector, parameters, scores, examples.labels[scored_mask], groups, scored_mask, not_scored, is_default
    )


@dataclass(frozen=True, eq=False)
class ScoredSetting:
    """One detector at one setting: its n ``scores``, and the ``places`` of their examples, ascending: [n] each."""

    detector: str
    parameters: str
    is_default: bool
    places: Places
    scores: Floats


def iterate_settings(
    scores: pa.Table, known_ids: pa.ChunkedArray, wanted_ids: pa.Array | pa.ChunkedArray, pair: Pair
) -> Iterator[ScoredSetting]:
    """Yield the scores of a ``pair`` (schema SCORES) by detector and parameters, sorted; others are left aside.

    ``known_ids`` are all examples of the benchmark; places are those among ``wanted_ids``. Raises DataError for a score
    of an unknown example, an example or setting that is scored twice, a status ``ok`` without a finite score, and a row
    that does not say whether its setting is the detector's default.
    """
    own = scores.filter(pc.and_(pc.equal(scores["model"], pair.model), pc.equal(scores["benchmark"], pair.benchmark)))
    unknown = pc.sum(pc.invert(pc.is_in(own["example_id"], value_set=known_ids))).as_py()
    if unknown:
        raise DataError(f"{unknown} scores are of examples that are not in benchmark {pair.benchmark}: score it again")
    if own["is_default"].null_count:
        raise DataError("the scores do not say which setting is the detector's default: score the benchmark again")
    own = own.append_column("place", pc.index_in(own["example_id"], value_set=wanted_ids))
    settings = own.group_by(["detector", "parameters"]).aggregate([("is_default", "any")]).to_pylist()
    for setting in sorted(settings, key=lambda row: (row["detector"], row["parameters"])):
        detector, parameters = setting["detector"], setting["parameters"]
        rows = own.filter(pc.and_(pc.equal(own["detector"], detector), pc.equal(own["parameters"], parameters)))
        if pc.count_distinct(rows["example_id"]).as_py() != rows.num_rows:
            raise DataError(f"{detector} {parameters} scores an example twice: hand over the scores of one run")
        rows = rows.filter(pc.equal(rows["status"], "ok"))
        if not pc.all(pc.fill_null(pc.is_finite(rows["score"]), False), min_count=0).as_py():
            raise DataError(f"{detector} has a score with status ok that is not a finite number: score it again")
        rows = rows.filter(pc.is_valid(rows["place"])).sort_by("place")
        places = np.asarray(rows["place"].to_numpy(), dtype=np.intp)
        values = np.asarray(rows["score"].to_numpy(), dtype=np.float64)
        yield ScoredSetting(detector, parameters, setting["is_default_any"], places, values)
