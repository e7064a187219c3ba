"""The scores of each detector setting, with the labels and groups of the two compared sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits.evaluation_split import LabelledExamples, select_labelled_examples
from audit_pipeline.statistics.roc import Bools, Floats, Places, RocPoints, compute_roc_points, explain_undefined
from audit_pipeline.tables import EXAMPLES, MEMBER, NON_MEMBER, Pair

HELD_OUT_COMPARISON = "audited texts (membership unknown) are compared with held-out texts, the non-members"


def is_against_held_out(method: str | None) -> bool:
    """Return True if a metric compares audited with held-out texts, according to its column ``method``."""
    return (method or "").startswith(HELD_OUT_COMPARISON)


def relabel_for_comparison(examples: pa.Table) -> pa.Table:
    """Return the examples with labels by which metrics compare audited texts with held-out texts.

    Audited texts get label 1 and held-out texts get label 0. All of them are moved to the evaluation split. The AUROC
    then measures how well a detector separates the two sides. Without training it is 0.5, except for chance.

    Args:
        examples: The examples (schema EXAMPLES).

    Returns:
        The relabelled examples. If an evaluated text is labelled, or if no text is held out, ``examples`` is returned
        unchanged.
    """
    evaluated = pc.equal(examples["split"], "evaluation")
    held_out = pc.fill_null(
        pc.and_(pc.equal(examples["split"], "calibration"), pc.equal(examples["label"], NON_MEMBER)), False
    )
    labelled = pc.any(pc.and_(evaluated, pc.is_valid(examples["label"]))).as_py()
    if labelled or not pc.any(held_out).as_py() or not pc.any(evaluated).as_py():
        return examples
    return pa.concat_tables([_relabel_side(examples, evaluated, MEMBER), _relabel_side(examples, held_out, NON_MEMBER)])


def _relabel_side(examples: pa.Table, mask: pa.ChunkedArray, label: int) -> pa.Table:
    """Return the examples that the mask selects, with a new label and the split ``evaluation``."""
    side = examples.filter(mask)
    labels = pa.repeat(pa.scalar(label, pa.int8()), len(side))
    side = side.set_column(EXAMPLES.names.index("label"), EXAMPLES.field("label"), labels)
    splits = pa.repeat("evaluation", len(side))
    return side.set_column(EXAMPLES.names.index("split"), EXAMPLES.field("split"), splits)


Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class ScoreColumn:
    """The scores of a detector setting on the labelled examples that it has scored.

    Attributes:
        detector: Name of the detector.
        parameters: The setting as JSON.
        scores: The scores, of shape (n_scored,).
        labels: The labels, of shape (n_scored,).
        groups: The groups.
        scored: The mask of scored examples among all labelled examples.
        n_not_scored: Number of labelled examples without a score.
        is_default: True for the default setting.
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
        """Return the detector and its parameters, which identify the column."""
        return self.detector, self.parameters

    @property
    def members(self) -> Floats:
        """Return the scores of members, for histograms."""
        return np.asarray(self.scores[self.labels == MEMBER])

    @property
    def nonmembers(self) -> Floats:
        """Return the scores of non-members, for histograms."""
        return np.asarray(self.scores[self.labels == NON_MEMBER])

    def roc(self) -> RocPoints | None:
        """Return the ROC curve for plots, or None if a class is missing."""
        return None if explain_undefined(self.labels) else compute_roc_points(self.scores, self.labels)


def build_score_columns(scores: pa.Table, examples: pa.Table, pair: Pair) -> list[ScoreColumn]:
    """Build the score columns of a pair, sorted by detector and parameters.

    Raises:
        DataError: In the cases of :func:`iterate_settings` and :func:`select_labelled_examples`.
    """
    labelled = select_labelled_examples(examples)
    labelled_ids = pa.array(labelled.example_ids, pa.string())
    columns: list[ScoreColumn] = []
    for setting in iterate_settings(scores, examples["example_id"], labelled_ids, pair):
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
    """Build the score column of one setting.

    Args:
        detector: Name of the detector.
        parameters: The setting as JSON.
        scores: The scores, of shape (n_scored,).
        scored_mask: The mask of the scored examples among all labelled examples.
        examples: All labelled examples.
        is_default: True for the default setting.
    """
    groups = [group for group, is_scored in zip(examples.groups, scored_mask, strict=True) if is_scored]
    not_scored = len(examples) - int(scored_mask.sum())
    return ScoreColumn(
        detector, parameters, scores, examples.labels[scored_mask], groups, scored_mask, not_scored, is_default
    )


@dataclass(frozen=True, eq=False)
class ScoredSetting:
    """The scores of a detector setting.

    Attributes:
        detector: Name of the detector.
        parameters: The setting as JSON.
        is_default: True for the default setting.
        places: The positions of the scored examples in ascending order, of shape (n_scored,).
        scores: The scores, of shape (n_scored,).
    """

    detector: str
    parameters: str
    is_default: bool
    places: Places
    scores: Floats


def iterate_settings(
    scores: pa.Table, known_ids: pa.ChunkedArray, wanted_ids: pa.Array | pa.ChunkedArray, pair: Pair
) -> Iterator[ScoredSetting]:
    """Yield the scores of a pair by setting, sorted by detector and parameters.

    Args:
        scores: The scores (schema SCORES). Rows of other pairs are ignored.
        known_ids: The ids of all examples of the benchmark.
        wanted_ids: The ids of the examples whose positions are returned. Other scores are omitted.
        pair: The pair of benchmark and model.

    Raises:
        DataError: If an example is unknown or scored twice by a setting, if a score with status ``ok`` is not finite,
            or if ``is_default`` is null.
    """
    is_of_pair = pc.and_(pc.equal(scores["model"], pair.model), pc.equal(scores["benchmark"], pair.benchmark))
    pair_scores = scores.filter(is_of_pair)
    n_unknown = pc.sum(pc.invert(pc.is_in(pair_scores["example_id"], value_set=known_ids))).as_py()
    if n_unknown:
        raise DataError(
            f"{n_unknown} scores belong to examples that are not in benchmark {pair.benchmark}. Score the "
            "benchmark again."
        )
    if pair_scores["is_default"].null_count:
        raise DataError("the column is_default of the scores has a null. Score the benchmark again.")
    pair_scores = pair_scores.append_column("place", pc.index_in(pair_scores["example_id"], value_set=wanted_ids))
    settings = pair_scores.group_by(["detector", "parameters"]).aggregate([("is_default", "any")]).to_pylist()
    for setting in sorted(settings, key=lambda row: (row["detector"], row["parameters"])):
        detector = setting["detector"]
        parameters = setting["parameters"]
        is_of_detector = pc.equal(pair_scores["detector"], detector)
        rows = pair_scores.filter(pc.and_(is_of_detector, pc.equal(pair_scores["parameters"], parameters)))
        if pc.count_distinct(rows["example_id"]).as_py() != rows.num_rows:
            counts = rows.group_by("example_id").aggregate([("example_id", "count")])
            repeated = counts.filter(pc.greater(counts["example_id_count"], 1))["example_id"][0].as_py()
            raise DataError(
                f"the detector {detector} with the parameters {parameters} has several scores of the text "
                f"{repeated!r}. Use the scores of a single run."
            )
        rows = rows.filter(pc.equal(rows["status"], "ok"))
        if not pc.all(pc.fill_null(pc.is_finite(rows["score"]), False), min_count=0).as_py():
            raise DataError(
                f"the detector {detector} has a score with status ok that is not a finite number. Score the benchmark "
                "again."
            )
        rows = rows.filter(pc.is_valid(rows["place"])).sort_by("place")
        places = np.asarray(rows["place"].to_numpy(), dtype=np.intp)
        values = np.asarray(rows["score"].to_numpy(), dtype=np.float64)
        yield ScoredSetting(detector, parameters, setting["is_default_any"], places, values)
