"""The scores of one detector at one setting beside the labels of their texts.

What belongs here: joining a table of scores with labelled examples. What does not: metrics of the scores
(evaluate.py), differences between two detectors (comparison.py), and thresholds (group_rows.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import MEMBER, NON_MEMBER
from audit_pipeline.errors import DataError
from audit_pipeline.metrics.curves import Floats
from audit_pipeline.metrics.metrics import RocPoints, roc_points, undefined
from audit_pipeline.separability.labelled import LabelledExamples, labelled_examples

Bools = npt.NDArray[np.bool_]
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
        """The ROC curve, for plots; None where there is one class only."""
        return None if undefined(self.labels) else roc_points(self.scores, self.labels)


def score_columns(scores: pa.Table, examples: pa.Table, *, model: str, benchmark: str) -> list[ScoreColumn]:
    """The scores of one model on one benchmark, by detector and parameters, beside their examples' labels.

    Sorted by detector and parameters. Raises DataError for an example or setting that is scored twice, a score of an
    example that is not in ``examples``, a status ``ok`` without a finite score, and as :func:`labelled_examples` and
    :func:`settings_of` do.
    """
    labelled = labelled_examples(examples)
    own = scores.filter(pc.and_(pc.equal(scores["model"], model), pc.equal(scores["benchmark"], benchmark)))
    unknown = pc.sum(pc.invert(pc.is_in(own["example_id"], value_set=examples["example_id"]))).as_py()
    if unknown:
        raise DataError(f"{unknown} scores are of examples that are not in benchmark {benchmark}: score it again")
    place = pc.index_in(own["example_id"], value_set=pa.array(labelled.example_ids, pa.string()))
    own = own.append_column("place", place)
    ok = pc.equal(own["status"], "ok")
    if pc.any(pc.and_(ok, pc.invert(pc.fill_null(pc.is_finite(own["score"]), False)))).as_py():
        raise DataError(f"a score of benchmark {benchmark} has status ok and is not a finite number: score it again")
    columns = []
    for (detector, parameters), is_default in settings_of(own).items():
        rows = own.filter(pc.and_(pc.equal(own["detector"], detector), pc.equal(own["parameters"], parameters)))
        if pc.count_distinct(rows["example_id"]).as_py() != rows.num_rows:
            raise DataError(f"{detector} {parameters} scores an example twice: hand over the scores of one run")
        rows = rows.filter(pc.and_(pc.equal(rows["status"], "ok"), pc.is_valid(rows["place"])))
        places = np.asarray(rows["place"].to_numpy(), dtype=np.intp)
        values = np.full(len(labelled), np.nan)
        values[places] = rows["score"].to_numpy()
        scored = np.zeros(len(labelled), dtype=np.bool_)
        scored[places] = True
        columns.append(column_of(detector, parameters, values[scored], scored, labelled, is_default=is_default))
    return columns


def column_of(
    detector: str, parameters: str, scores: Floats, scored: Bools, labelled: LabelledExamples, *, is_default: bool
) -> ScoreColumn:
    """The column of the ``scores`` [n] of those ``labelled`` examples that are ``scored`` (one truth value each)."""
    groups = [group for group, one in zip(labelled.groups, scored, strict=True) if one]
    not_scored = len(labelled) - int(scored.sum())
    return ScoreColumn(detector, parameters, scores, labelled.labels[scored], groups, scored, not_scored, is_default)


def settings_of(scores: pa.Table) -> dict[Key, bool]:
    """By detector and parameters, sorted: whether these are the detector's default (``scores``: schema SCORES).

    Raises DataError where a row does not say so: those of earlier versions are to be filled when they are read
    (:func:`audit_pipeline.detectors.registry.mark_defaults`).
    """
    if scores["is_default"].null_count:
        raise DataError("the scores do not say which setting is the detector's default: score the benchmark again")
    found = scores.group_by(["detector", "parameters"]).aggregate([("is_default", "any")])
    columns = (found[name].to_pylist() for name in ("detector", "parameters", "is_default_any"))
    return {
        (detector, parameters): is_default for detector, parameters, is_default in sorted(zip(*columns, strict=True))
    }
