"""From a table of scores and a table of examples to the table of findings.

What belongs here: joining scores with labels, and putting metrics, intervals, the blind control and the claim level
into rows. What does not: how any of them is computed (the other modules), and where the rows are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.catalogue.contracts import EVALUATIONS, EXAMPLES, MEMBER, NON_MEMBER, canonical_json
from audit_pipeline.catalogue.tables import checked, table_from_rows
from audit_pipeline.detectors import registry
from audit_pipeline.errors import DataError
from audit_pipeline.evidence.comparison import compared
from audit_pipeline.metrics.claims import ClaimLevel, SplitVerdict, claim_level, split_verdict
from audit_pipeline.metrics.intervals import (
    NO_INTERVAL,
    RESAMPLED,
    RESAMPLES,
    GroupBootstrap,
    Interval,
    percentile_interval,
)
from audit_pipeline.metrics.metrics import (
    ALL_EQUAL,
    FPR_LIMITS,
    MEANING,
    METRICS,
    Floats,
    RocPoints,
    rank,
    roc_points,
    undefined,
    weighted_metrics,
)
from audit_pipeline.metrics.rates import tpr_at_fpr
from audit_pipeline.separability import blind_control as blind
from audit_pipeline.separability.blind_control import BlindControl

MARGIN = "auroc_margin"
_MARGIN_MEANING = "AUROC less the blind control's, on the same texts and resamples"

Bools = npt.NDArray[np.bool_]
Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class LabelledExamples:
    """The labelled examples of the evaluation split, by group and id: [n] each."""

    example_ids: list[str]
    texts: list[str]
    labels: npt.NDArray[np.int8]
    groups: list[str]

    def __len__(self) -> int:
        return len(self.example_ids)


@dataclass(frozen=True, eq=False)
class ScoreColumn:
    """One detector's scores at one setting, of those n labelled examples that have one: [n] each array.

    ``n_not_scored`` counts the labelled examples that have none; ``is_default``: the headline setting.
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


@dataclass(frozen=True)
class Margin:
    """A detector's AUROC less the blind control's on the same texts and resamples; it never raises a claim level."""

    value: float
    interval: Interval


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The findings of one model on one benchmark.

    ``table`` has the columns of EVALUATIONS. It has no rows, and ``reason`` says why, where the evaluation split
    holds no labelled example. ``columns`` are the scores behind the rows, the blind control's (where read) last.
    ``margins`` maps (detector, parameters) to the margin over the blind control, where both AUROCs are defined.
    """

    table: pa.Table
    reason: str | None
    split_verdict: SplitVerdict
    claim_level: ClaimLevel
    columns: list[ScoreColumn]
    margins: dict[Key, Margin] = field(default_factory=dict)


def labelled_examples(examples: pa.Table) -> LabelledExamples:
    """The examples of the evaluation split that have a label.

    Raises DataError for a missing column, a null, a label other than 0 and 1, or an example_id that occurs twice.
    """
    names = ("example_id", "text", "label", "split", "group")
    table = checked(
        examples.select([name for name in names if name in examples.column_names]),
        pa.schema([EXAMPLES.field(name) for name in names]),
    )
    if pc.count_distinct(table["example_id"]).as_py() != table.num_rows:
        raise DataError("an example_id occurs twice in the benchmark: build the benchmark again")
    table = table.filter(pc.and_(pc.equal(table["split"], "evaluation"), pc.is_valid(table["label"])))
    table = table.sort_by([("group", "ascending"), ("example_id", "ascending")])
    labels = np.asarray(table["label"].to_numpy(), dtype=np.int8)
    if not np.isin(labels, (MEMBER, NON_MEMBER)).all():
        raise DataError("a label is neither 1 (member), 0 (non-member) nor null: build the benchmark again")
    ids, texts, groups = (table[name].to_pylist() for name in ("example_id", "text", "group"))
    return LabelledExamples(ids, texts, labels, groups)


def score_columns(
    scores: pa.Table, examples: pa.Table, *, model: str, benchmark: str, overrides: registry.Overrides | None = None
) -> list[ScoreColumn]:
    """The scores of one model on one benchmark, by detector and parameters, beside their examples' labels.

    Sorted by detector and parameters. Raises DataError for an example or setting that is scored twice, a score of an
    example that is not in ``examples``, a status ``ok`` without a finite score, and as :func:`labelled_examples`.
    """
    return _score_columns(scores, examples, labelled_examples(examples), model, benchmark, overrides)


def evaluate(
    scores: pa.Table,
    examples: pa.Table,
    *,
    model: str,
    benchmark: str,
    design: str,
    language: str,
    run_id: str,
    overrides: registry.Overrides | None = None,
    matched: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Evaluation:
    """The findings: every metric of every detector and setting, and of the blind control, on the evaluation split.

    ``scores`` and ``examples`` have the columns of SCORES and EXAMPLES; rows of other models and benchmarks are left
    aside. ``overrides`` are defaults that the benchmark fixes; ``matched``: its sides were chosen to be hard to tell
    apart. A detector is evaluated on the texts that it has a score for, the others are counted. A metric that is not
    defined is null, with the reason in ``method``. Raises DataError as :func:`score_columns` does, ConfigError for an
    unknown design.
    """
    labelled = labelled_examples(examples)
    columns = _score_columns(scores, examples, labelled, model, benchmark, overrides)
    if not len(labelled):
        reason = "no finding: no example of the evaluation split has a label, so there is nothing to compare"
        verdict, level = _verdict_and_level(design, NO_INTERVAL, matched)
        return Evaluation(EVALUATIONS.empty_table(), reason, verdict, level, columns)
    control = blind.blind_control(
        labelled.example_ids, labelled.texts, labelled.labels, labelled.groups, language=language, seed=seed
    )
    control_column = _blind_column(control, labelled)
    measured: dict[Key, _Findings] = {}
    for same_texts in _by_texts([*columns, control_column]):
        measured.update(_measure(same_texts, control, resamples, seed))
    blind_auroc = measured[control_column.key]["auroc"].interval
    verdict, level = _verdict_and_level(design, blind_auroc, matched)
    rows = [
        {
            "model": model,
            "benchmark": benchmark,
            "detector": column.detector,
            "parameters": column.parameters,
            "is_default": column.is_default,
            "n_members": len(column.members),
            "n_nonmembers": len(column.nonmembers),
            "n_groups": len(set(column.groups)),
            "n_not_scored": column.n_not_scored,
            "metric": metric,
            "value": finding.value,
            "ci_low": finding.interval.low,
            "ci_high": finding.interval.high,
            "method": _method(finding, control if column is control_column else None),
            "split_verdict": verdict,
            "claim_level": level,
            "run_id": run_id,
        }
        for column in (*columns, control_column)
        for metric, finding in measured[column.key].items()
    ]
    return Evaluation(
        table_from_rows(rows, EVALUATIONS),
        None,
        verdict,
        level,
        [*columns, *([control_column] if control.scores is not None else [])],
        {
            column.key: Margin(margin.value, margin.interval)
            for column in columns
            if (margin := measured[column.key].get(MARGIN)) is not None and margin.value is not None
        },
    )


def _verdict_and_level(design: str, blind: Interval, matched: bool) -> tuple[SplitVerdict, ClaimLevel]:
    return split_verdict(design, blind, matched=matched), claim_level(design, blind, matched=matched)


@dataclass(frozen=True)
class _Finding:
    """One metric's value with its interval; None, and ``method`` says why, where it is not defined."""

    value: float | None
    interval: Interval
    method: str


_Findings = dict[str, _Finding]
"""By metric: the ``METRICS`` in their order, and behind them the margin over the blind control where there is one."""


def _blind_column(control: BlindControl, labelled: LabelledExamples) -> ScoreColumn:
    scored = np.full(len(labelled), control.scores is not None)
    scores = np.empty(0) if control.scores is None else control.scores
    return _column(blind.NAME, canonical_json({}), scores, scored, labelled, is_default=True)


def _column(
    detector: str,
    parameters: str,
    scores: Floats,
    scored: Bools,
    labelled: LabelledExamples,
    *,
    is_default: bool,
) -> ScoreColumn:
    groups = [group for group, one in zip(labelled.groups, scored, strict=True) if one]
    return ScoreColumn(
        detector,
        parameters,
        scores,
        labelled.labels[scored],
        groups,
        scored,
        len(labelled) - int(scored.sum()),
        is_default,
    )


def _score_columns(
    scores: pa.Table,
    examples: pa.Table,
    labelled: LabelledExamples,
    model: str,
    benchmark: str,
    overrides: registry.Overrides | None,
) -> list[ScoreColumn]:
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
    for detector, parameters in sorted(_settings(own)):
        rows = own.filter(pc.and_(pc.equal(own["detector"], detector), pc.equal(own["parameters"], parameters)))
        if pc.count_distinct(rows["example_id"]).as_py() != rows.num_rows:
            raise DataError(f"{detector} {parameters} scores an example twice: hand over the scores of one run")
        rows = rows.filter(pc.and_(pc.equal(rows["status"], "ok"), pc.is_valid(rows["place"])))
        places = np.asarray(rows["place"].to_numpy(), dtype=np.intp)
        values = np.full(len(labelled), np.nan)
        values[places] = rows["score"].to_numpy()
        scored = np.zeros(len(labelled), dtype=np.bool_)
        scored[places] = True
        is_default = registry.is_default(detector, parameters, overrides)
        columns.append(_column(detector, parameters, values[scored], scored, labelled, is_default=is_default))
    return columns


def _settings(scores: pa.Table) -> set[Key]:
    pairs = scores.group_by(["detector", "parameters"]).aggregate([])
    return set(zip(pairs["detector"].to_pylist(), pairs["parameters"].to_pylist(), strict=True))


def _by_texts(columns: Sequence[ScoreColumn]) -> list[list[ScoreColumn]]:
    """The columns in lists of those that score the same texts, so that one draw of resamples serves each list."""
    same: dict[bytes, list[ScoreColumn]] = {}
    for column in columns:
        same.setdefault(column.scored.tobytes(), []).append(column)
    return list(same.values())


def _measure(columns: Sequence[ScoreColumn], control: BlindControl, resamples: int, seed: int) -> dict[Key, _Findings]:
    """Values, intervals and margins of columns that score the same texts."""
    first = columns[0]
    problem = undefined(first.labels)
    if problem:
        return {column.key: dict.fromkeys(METRICS, _Finding(None, NO_INTERVAL, problem)) for column in columns}
    bootstrap = GroupBootstrap(first.groups, first.labels, resamples=resamples, seed=seed)
    rankings = [rank(column.scores, column.labels) for column in columns]
    if control.scores is not None:
        rankings.append(rank(control.scores[first.scored], first.labels))
    values = [dict(zip(RESAMPLED, weighted_metrics(one, names=RESAMPLED)[0].tolist(), strict=True)) for one in rankings]
    resampled = bootstrap.metrics(rankings, RESAMPLED)
    measured = {}
    for index, column in enumerate(columns):
        found = _resampled(values[index], resampled[index], bootstrap) | _tprs(column)
        if np.ptp(column.scores) == 0:
            measured[column.key] = {name: _without_interval(found[name]) for name in METRICS}
            continue
        measured[column.key] = {name: found[name] for name in METRICS}
        if control.scores is not None and column.detector != blind.NAME:
            place = RESAMPLED.index("auroc")
            margin = compared(
                values[index]["auroc"] - values[-1]["auroc"],
                resampled[index, :, place] - resampled[-1, :, place],
                bootstrap,
                meaning=_MARGIN_MEANING,
            )
            measured[column.key][MARGIN] = _Finding(margin.difference, margin.interval, margin.method)
    return measured


def _without_interval(finding: _Finding) -> _Finding:
    """The finding of scores that are all equal: its value where it has one, whose resamples do not scatter."""
    return finding if finding.value is None else _Finding(finding.value, NO_INTERVAL, ALL_EQUAL)


def _resampled(values: Mapping[str, float], resampled: Floats, bootstrap: GroupBootstrap) -> _Findings:
    """The metrics whose interval comes from the resamples, [resamples, len(RESAMPLED)]."""
    found = {}
    for place, (name, value) in enumerate(values.items()):
        if name == "auroc":
            interval, method = bootstrap.auroc_interval(value, resampled[:, place]), bootstrap.auroc_method(value)
        else:
            interval, method = percentile_interval(resampled[:, place]), bootstrap.percentile_method
        found[name] = _Finding(value, interval, f"{MEANING[name]}; {method}")
    return found


def _tprs(column: ScoreColumn) -> _Findings:
    """The TPR at each FPR, with the bounds of a share."""
    points = roc_points(column.scores, column.labels)
    found = {}
    for name, limit in FPR_LIMITS.items():
        rate = tpr_at_fpr(column.scores, column.labels, column.groups, limit, points=points)
        found[name] = _Finding(rate.value, rate.interval, rate.method)
    return found


def _method(finding: _Finding, control: BlindControl | None) -> str:
    if control is not None and control.reason is not None:
        return control.reason
    return finding.method if control is None or finding.value is None else f"{control.method}; {finding.method}"
