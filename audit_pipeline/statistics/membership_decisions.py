"""The tables of decisions: thresholds, tests of groups, corrected rates, and a check of the calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from audit_pipeline.errors import DataError
from audit_pipeline.splits.evaluation_split import read_examples
from audit_pipeline.statistics import conformal
from audit_pipeline.statistics.claims import ClaimLevel
from audit_pipeline.statistics.contamination_rate import (
    CONTRADICTED,
    compute_unit_rates,
    measure_threshold,
    select_assumption,
)
from audit_pipeline.statistics.group_means import detect_score_direction
from audit_pipeline.statistics.score_columns import iterate_settings
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
"""The alpha of the thresholds that the contamination rates are computed with, besides the largest accuracy."""
MIN_TEXTS_PER_GROUP = 2
"""Smaller groups have no row in the table of contamination rates. The flagged share of a single text is only 0 or 1."""

_UNKNOWN = -1

Row = dict[str, object]


@dataclass(frozen=True, eq=False)
class _Examples:
    """The examples as arrays of shape (n_examples,).

    The arrays ``groups`` and ``collections`` contain indices into ``group_names`` and ``collection_names``.
    """

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
        """Return the mask of the audited texts.

        These are the texts of the evaluation split with an unknown label, or all its texts if every label is known.
        """
        is_unknown = ~self.calibration & (self.labels == _UNKNOWN)
        return is_unknown if is_unknown.any() else ~self.calibration


@dataclass(frozen=True, eq=False)
class _Setting:
    """The texts that a detector scored at its default setting.

    Attributes:
        detector: Name of the detector.
        parameters: The setting as JSON.
        texts: All scored texts.
        calibration: The texts of the calibration split.
        evaluated: The texts of the evaluation split.
        audited: The audited texts among the evaluated texts.
        collections: The collection of each audited text.
    """

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
    """Compute thresholds on the calibration split and apply them to the evaluation split.

    The tables cover the default setting of each detector.

    - DECISIONS has one row per detector, rule and alpha, even if the rule is refused. Its rates are measured on the
      evaluation split.
    - GROUP_TESTS has one row per audited group and detector, if the detector scored calibration non-members.
    - CONTAMINATION_RATES has one row per collection, per benchmark, and per audited group of several texts.
    - CALIBRATION_CHECKS is computed from the non-members of both splits, if the calibration split has non-members.

    Args:
        scores: The scores (schema SCORES). Only status ``ok`` and default settings of the pair are used.
        examples: The examples (schema EXAMPLES).
        pair: The pair of benchmark and model.
        run_id: The id of the run, written to the tables.
        claim_level: The claim level, written to the tables.

    Returns:
        The tables DECISIONS, GROUP_TESTS, CONTAMINATION_RATES and CALIBRATION_CHECKS by name.

    Raises:
        DataError: If an example is repeated, unknown or scored twice by a setting, if a score is not finite, if a label
            is invalid, or if a group is in both splits.
    """
    prepared = _prepare_examples(examples)
    pair_columns: Row = {"model": pair.model, "benchmark": pair.benchmark, "run_id": run_id}
    decisions: list[Row] = []
    setting_tests: list[tuple[_Setting, conformal.GroupTests]] = []
    rates: list[Row] = []
    checks: list[Row] = []
    for setting in _iterate_default_settings(scores, prepared, pair):
        setting_columns = pair_columns | {"detector": setting.detector, "parameters": setting.parameters}
        thresholds = choose_thresholds(setting.calibration, ALPHAS)
        for threshold in thresholds:
            decisions.append(setting_columns | {"is_default": True} | _build_decision_row(threshold, setting))
        if not len(setting.calibration.nonmembers):
            continue
        tests = conformal.run_group_tests(setting.audited, setting.calibration)
        if tests.reason is None:
            setting_tests.append((setting, tests))
        rate_columns = setting_columns | {"is_default": True, "claim_level": claim_level}
        for threshold in thresholds:
            if threshold.alpha in (None, RATE_ALPHA):
                rows = _iterate_rate_rows(threshold, setting, prepared, pair.benchmark)
                rates.extend(rate_columns | row for row in rows)
        checks.extend(setting_columns | vars(check) for check in check_calibration(setting.texts.nonmembers))
    test_columns: Row = pair_columns | {"is_default": True, "claim_level": claim_level}
    test_rows = (test_columns | row for row in _iterate_test_rows(setting_tests, prepared))
    return {
        DECISIONS.name: table_from_rows(decisions, DECISIONS),
        GROUP_TESTS.name: table_from_rows(test_rows, GROUP_TESTS),
        CONTAMINATION_RATES.name: table_from_rows(rates, CONTAMINATION_RATES),
        CALIBRATION_CHECKS.name: table_from_rows(checks, CALIBRATION_CHECKS),
    }


def _prepare_examples(examples: pa.Table) -> _Examples:
    table = read_examples(examples, ("example_id", "label", "split", "group", "collection")).combine_chunks()
    labels = np.asarray(pc.fill_null(table["label"], _UNKNOWN).to_numpy(), dtype=np.int8)
    calibration = np.asarray(pc.equal(table["split"], "calibration").to_numpy())
    group_names, groups = _encode_column(table["group"])
    collection_names, collections = _encode_column(table["collection"])
    divided = np.intersect1d(groups[calibration], groups[~calibration])
    if len(divided):
        name = group_names[divided[0]]
        raise DataError(
            f"the group {name} is in both the calibration and the evaluation split. Assign all its texts to one split."
        )
    keys = compute_sampling_keys(table["group"].to_pylist(), table["example_id"].to_pylist(), seed=0)
    return _Examples(table, labels, calibration, groups, group_names, collections, collection_names, keys)


def _encode_column(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.intp]]:
    names = sorted(pc.unique(column).to_pylist())
    codes = pc.index_in(column, value_set=pa.array(names, pa.string()))
    return names, np.asarray(codes.to_numpy(), dtype=np.intp)


def _iterate_default_settings(scores: pa.Table, examples: _Examples, pair: Pair) -> Iterator[_Setting]:
    """Yield the scored texts of each detector at its default setting, sorted by detector."""
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


def _iterate_test_rows(
    setting_tests: Sequence[tuple[_Setting, conformal.GroupTests]], examples: _Examples
) -> Iterator[Row]:
    """Yield the rows of GROUP_TESTS for all detectors together, because joint q-values depend on all p-values."""
    joint_q_values = conformal.compute_joint_q_values([tests.p_value for _, tests in setting_tests])
    n_joint_tests = sum(len(tests) for _, tests in setting_tests)
    for (setting, tests), q_ledger in zip(setting_tests, joint_q_values, strict=True):
        group_of_text = np.searchsorted(tests.groups, setting.audited.groups)
        first_text = np.searchsorted(group_of_text, np.arange(len(tests)))
        collections = setting.collections[first_text]
        # A group has the label of its first text, or an unknown label if its texts have different labels.
        labels = setting.audited.labels[first_text]
        is_mixed = np.bincount(group_of_text, weights=setting.audited.labels != labels[group_of_text]) > 0
        group_labels = pa.array(labels, mask=is_mixed | (labels == _UNKNOWN))
        # All texts with a known label determine the direction of the scores.
        texts = setting.texts
        common: Row = {
            "detector": setting.detector,
            "parameters": setting.parameters,
            "n_tests": len(tests),
            "n_ledger": n_joint_tests,
            "method": conformal.METHOD,
            "direction": detect_score_direction(texts.scores, texts.labels, texts.groups),
        }
        group_names = [examples.group_names[group] for group in tests.groups]
        collection_names = [examples.collection_names[collection] for collection in collections]
        columns = {
            "group": group_names,
            "collection": collection_names,
            "label": group_labels,
            "n_texts": tests.n_texts,
            "n_compared": tests.n_compared,
            "statistic": tests.statistic,
            "p_value": tests.p_value,
            "q_bh": conformal.compute_q_values(tests.p_value, "bh"),
            "q_by": conformal.compute_q_values(tests.p_value, "by"),
            "q_ledger": q_ledger,
            "n_calibration_groups": tests.n_calibration_groups,
        }
        for row in pa.table(columns).to_pylist():
            yield common | row


def _iterate_rate_rows(threshold: Threshold, setting: _Setting, examples: _Examples, benchmark: str) -> Iterator[Row]:
    audited = setting.audited
    instrument = measure_threshold(threshold, setting.calibration)
    if instrument is None or not len(audited):
        return
    sizes = np.bincount(audited.groups, minlength=len(examples.group_names))
    in_large_group = sizes[audited.groups] >= MIN_TEXTS_PER_GROUP
    common: Row = {
        "rule": threshold.rule,
        "alpha": threshold.alpha,
        "status": "ok" if instrument.reason is None else "refused",
        "reason": instrument.reason,
        **_build_rate_columns("fpr", instrument.fpr),
        **_build_rate_columns("tpr", instrument.tpr),
    }
    for unit, names, texts, unit_of_text in (
        ("group", examples.group_names, audited.take(in_large_group), audited.groups[in_large_group]),
        ("collection", examples.collection_names, audited, setting.collections),
        ("benchmark", [benchmark], audited, np.zeros(len(audited), dtype=np.intp)),
    ):
        rates = vars(compute_unit_rates(texts, unit_of_text, instrument))
        # A missing rate is NaN in the arrays and null in the table.
        columns = {name: pa.array(values, from_pandas=True) for name, values in rates.items()}
        for row in pa.table(columns).to_pylist():
            assumption = select_assumption(instrument, row["n_groups"])
            if row["corrected"] is not None and row["corrected_low"] is None:
                assumption += CONTRADICTED
            yield common | row | {"unit": unit, "name": names[row["name"]], "assumption": assumption}


def _build_rate_columns(name: str, rate: Rate) -> Row:
    return {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
