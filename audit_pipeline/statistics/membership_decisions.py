"""From scores and examples to the tables of what is decided: texts, groups, rates, and a check of the instrument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits.evaluation_texts import read_examples
from audit_pipeline.statistics.claims import ClaimLevel
from audit_pipeline.statistics.conformal import METHOD, GroupTests, compute_joint_q_values, q_values, run_group_tests
from audit_pipeline.statistics.contamination_rate import (
    CONTRADICTED,
    compute_unit_rates,
    measure_instrument,
    select_assumption,
)
from audit_pipeline.statistics.score_columns import iterate_settings
from audit_pipeline.statistics.score_direction import detect_score_direction
from audit_pipeline.statistics.share_bounds import Rate, describe_interval_method
from audit_pipeline.statistics.thresholds import (
    ScoredTexts,
    Threshold,
    check_calibration,
    choose_thresholds,
    compute_sampling_keys,
    estimate_achieved_rates,
)
from audit_pipeline.store.files import cast_to_columns, table_from_rows
from audit_pipeline.tables import CALIBRATION_CHECKS, CONTAMINATION_RATES, DECISIONS, GROUP_TESTS, SCORES, Pair

ALPHAS = (0.05, 0.01)
RATE_ALPHA = 0.05
"""Of ALPHAS: the rates of units are those of the thresholds at this rate, and of the largest accuracy."""
MIN_TEXTS_OF_A_GROUP = 2
"""A rate of one text is its decision: groups of one text are left out of the table of rates."""

_UNKNOWN = -1

Row = dict[str, object]


@dataclass(frozen=True, eq=False)
class _Examples:
    """The examples by group and id: [n] each array. Groups and collections are places in their lists of names."""

    table: pa.Table
    labels: npt.NDArray[np.int8]
    calibration: npt.NDArray[np.bool_]
    groups: npt.NDArray[np.intp]
    group_names: list[str]
    collections: npt.NDArray[np.intp]
    collection_names: list[str]
    keys: npt.NDArray[np.uint64]

    @property
    def audited(self) -> npt.NDArray[np.bool_]:
        """The evaluated texts of unknown label, which are what is asked about; where none is unknown, all of them."""
        unknown = ~self.calibration & (self.labels == _UNKNOWN)
        return unknown if unknown.any() else ~self.calibration


@dataclass(frozen=True, eq=False)
class _Setting:
    """One detector at its default setting: all its texts, those that calibrate, those that are evaluated, of these the
    audited ones, and the collections of the audited."""

    detector: str
    parameters: str
    texts: ScoredTexts
    calibration: ScoredTexts
    evaluated: ScoredTexts
    audited: ScoredTexts
    collections: npt.NDArray[np.intp]


def compute_decision_tables(
    scores: pa.Table,
    examples: pa.Table,
    pair: Pair,
    run_id: str,
    *,
    claim_level: ClaimLevel,
) -> dict[str, pa.Table]:
    """What the calibration split allows to decide about the evaluation split, for every detector's default setting.

    The tables DECISIONS, GROUP_TESTS, CONTAMINATION_RATES and CALIBRATION_CHECKS of a ``pair``, by name.

    ``scores`` and ``examples`` have the columns of SCORES and EXAMPLES; scores of other models and benchmarks, of other
    settings, and without status ``ok`` are left aside. Decisions have a row for each detector, rule and alpha, also
    where it is refused; their rates are those of the evaluation split. Every audited group is tested by every detector
    that has calibration non-members: of the evaluation split those of unknown label, or all where none is unknown.
    Rates are of each audited group of several texts, each collection and the benchmark. The calibration check reads the
    non-members of both splits, where there are some to calibrate on.

    Raises DataError for an example that occurs twice, or is scored twice by one setting, a score of an unknown example,
    a status ``ok`` without a finite score, a label other than 0, 1 and null, or a group that is in both splits.
    """
    read = _prepare_examples(examples)
    of_pair: Row = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    decisions: list[Row] = []
    tested: list[tuple[_Setting, GroupTests]] = []
    rates: list[Row] = []
    checks: list[Row] = []
    for setting in _iterate_default_settings(scores, read, pair):
        named = of_pair | {"detector": setting.detector, "parameters": setting.parameters}
        chosen = choose_thresholds(setting.calibration, ALPHAS)
        decisions.extend(named | {"is_default": True} | _build_decision_row(threshold, setting) for threshold in chosen)
        if not len(setting.calibration.nonmembers):
            continue
        found = run_group_tests(setting.audited, setting.calibration)
        if found.reason is None:
            tested.append((setting, found))
        claimed = named | {"is_default": True, "claim_level": claim_level}
        for threshold in chosen:
            if threshold.alpha in (None, RATE_ALPHA):
                rates.extend(claimed | row for row in _iterate_rate_rows(threshold, setting, read, pair.benchmark))
        checks.extend(named | vars(check) for check in check_calibration(setting.texts.nonmembers))
    claim: Row = of_pair | {"is_default": True, "claim_level": claim_level}
    return {
        DECISIONS.name: table_from_rows(decisions, DECISIONS),
        GROUP_TESTS.name: table_from_rows((claim | row for row in _iterate_test_rows(tested, read)), GROUP_TESTS),
        CONTAMINATION_RATES.name: table_from_rows(rates, CONTAMINATION_RATES),
        CALIBRATION_CHECKS.name: table_from_rows(checks, CALIBRATION_CHECKS),
    }


def _prepare_examples(examples: pa.Table) -> _Examples:
    table = read_examples(examples, ("example_id", "label", "split", "group", "collection")).combine_chunks()
    labels = np.asarray(pc.fill_null(table["label"], _UNKNOWN).to_numpy(), dtype=np.int8)
    calibration = np.asarray(pc.equal(table["split"], "calibration").to_numpy())
    group_names, groups = _encode_column(table["group"])
    collection_names, collections = _encode_column(table["collection"])
    both = np.intersect1d(groups[calibration], groups[~calibration])
    if len(both):
        raise DataError(
            f"group {group_names[both[0]]} is in the calibration and in the evaluation split: a group is never divided"
        )
    keys = compute_sampling_keys(table["group"].to_pylist(), table["example_id"].to_pylist(), seed=0)
    return _Examples(table, labels, calibration, groups, group_names, collections, collection_names, keys)


def _encode_column(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.intp]]:
    names = sorted(pc.unique(column).to_pylist())
    codes = pc.index_in(column, value_set=pa.array(names, pa.string()))
    return names, np.asarray(codes.to_numpy(), dtype=np.intp)


def _iterate_default_settings(scores: pa.Table, examples: _Examples, pair: Pair) -> Iterator[_Setting]:
    """Yield each detector's default setting, sorted by detector."""
    example_ids = examples.table["example_id"]
    for setting in iterate_settings(cast_to_columns(scores, SCORES), example_ids, example_ids, pair):
        if not setting.is_default:
            continue
        places = setting.places
        texts = ScoredTexts(setting.scores, examples.labels[places], examples.groups[places], examples.keys[places])
        calibration = examples.calibration[places]
        audited = examples.audited[places]
        yield _Setting(
            setting.detector,
            setting.parameters,
            texts,
            calibration=texts.take(calibration),
            evaluated=texts.take(~calibration),
            audited=texts.take(audited),
            collections=examples.collections[places][audited],
        )


def _build_decision_row(threshold: Threshold, setting: _Setting) -> Row:
    nonmembers = setting.calibration.nonmembers
    fpr, tpr = estimate_achieved_rates(threshold.threshold, setting.evaluated)
    method = threshold.method
    if threshold.threshold is not None:
        method += f"; FPR: {describe_interval_method(fpr)}; TPR: {describe_interval_method(tpr)}"
    return {
        "rule": threshold.rule,
        "alpha": threshold.alpha,
        "threshold": threshold.threshold,
        "status": threshold.status,
        "reason": threshold.reason,
        "n_calibration_groups": nonmembers.n_groups,
        "n_calibration_nonmembers": len(nonmembers),
        "n_calibration_members": len(setting.calibration.members),
        "n_nonmembers": fpr.n,
        "n_members": tpr.n,
        **_build_rate_columns("fpr", fpr),
        **_build_rate_columns("tpr", tpr),
        "method": method,
    }


def _iterate_test_rows(setting_tests: Sequence[tuple[_Setting, GroupTests]], examples: _Examples) -> Iterator[Row]:
    """Yield the rows of all detectors: the ledger needs every p-value before any row can be written."""
    ledger = compute_joint_q_values([found.p_value for _, found in setting_tests])
    n_ledger = sum(len(found) for _, found in setting_tests)
    for (setting, found), q_ledger in zip(setting_tests, ledger, strict=True):
        # The label of each group (unknown where its texts differ) and the collection are those of its first text.
        place = np.searchsorted(found.groups, setting.audited.groups)
        first = np.searchsorted(place, np.arange(len(found)))
        labels = setting.audited.labels[first]
        differ = np.bincount(place, weights=setting.audited.labels != labels[place]) > 0
        # Which way the scores run, by every text of which it is known whether it is a member.
        known = setting.texts
        same: Row = {
            "detector": setting.detector,
            "parameters": setting.parameters,
            "n_tests": len(found),
            "n_ledger": n_ledger,
            "method": METHOD,
            "direction": detect_score_direction(known.scores, known.labels, known.groups),
        }
        columns = {
            "group": [examples.group_names[group] for group in found.groups],
            "collection": [examples.collection_names[collection] for collection in setting.collections[first]],
            "label": [None if label == _UNKNOWN else label for label in np.where(differ, _UNKNOWN, labels).tolist()],
            "n_texts": found.n_texts,
            "n_compared": found.n_compared,
            "statistic": found.statistic,
            "p_value": found.p_value,
            "q_bh": q_values(found.p_value, "bh"),
            "q_by": q_values(found.p_value, "by"),
            "q_ledger": q_ledger,
            "n_calibration_groups": found.n_calibration_groups,
        }
        yield from (same | row for row in pa.table(columns).to_pylist())


def _iterate_rate_rows(threshold: Threshold, setting: _Setting, examples: _Examples, benchmark: str) -> Iterator[Row]:
    found, audited = measure_instrument(threshold, setting.calibration), setting.audited
    if found is None or not len(audited):
        return
    sizes = np.bincount(audited.groups, minlength=len(examples.group_names))
    several = sizes[audited.groups] >= MIN_TEXTS_OF_A_GROUP
    same: Row = {
        "rule": threshold.rule,
        "alpha": threshold.alpha,
        "status": "ok" if found.reason is None else "refused",
        "reason": found.reason,
        **_build_rate_columns("fpr", found.fpr),
        **_build_rate_columns("tpr", found.tpr),
    }
    for unit, names, texts, unit_of_text in (
        ("group", examples.group_names, audited.take(several), audited.groups[several]),
        ("collection", examples.collection_names, audited, setting.collections),
        ("benchmark", [benchmark], audited, np.zeros(len(audited), dtype=np.intp)),
    ):
        rates = vars(compute_unit_rates(texts, unit_of_text, found))
        # What there is not is NaN there, and null here.
        columns = {name: pa.array(values, from_pandas=True) for name, values in rates.items()}
        for row in pa.table(columns).to_pylist():
            contradicted = row["corrected"] is not None and row["corrected_low"] is None
            assumption = select_assumption(found, row["n_groups"]) + (CONTRADICTED if contradicted else "")
            yield same | row | {"unit": unit, "name": names[row["name"]], "assumption": assumption}


def _build_rate_columns(name: str, rate: Rate) -> Row:
    return {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
