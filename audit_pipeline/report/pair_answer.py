"""The answer of one model on one benchmark: a row of the table ``pair_answers``.

The terminal, the report and the UI read this row. The module collects findings from the tables of an evaluation.
answer_rules.py decides the outcome, and pipeline/evaluate_pair.py reads and writes the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa

from audit_pipeline.report import answer_rules
from audit_pipeline.report.answer_rules import (
    OPPOSITE,
    DetectorFindings,
    DocumentFindings,
    MetricEstimate,
    PairFindings,
)
from audit_pipeline.report.sentences import Q_LEVEL
from audit_pipeline.splits.blind_controls import NAME as BLIND_CONTROL
from audit_pipeline.statistics.claims import find_claim_source, warn_of_few_texts
from audit_pipeline.statistics.conformal import compute_benjamini_yekutieli_factor
from audit_pipeline.statistics.evaluate_options import PREFERRED, choose_headline_detector
from audit_pipeline.statistics.score_columns import is_against_held_out
from audit_pipeline.tables import Pair

Row = Mapping[str, Any]
Setting = tuple[str, str]
"""A detector and its parameters."""
CHOSEN_RULES = (("certified", 0.05), ("marginal", 0.05), ("largest_accuracy", None), ("marginal", 0.01))
"""Rule and alpha of thresholds, in order of preference. The report quotes the first threshold that exists.

The first screen shows only rates at certified thresholds.
"""


@dataclass(frozen=True)
class PairFacts:
    """Facts about a model and a benchmark that are known without an evaluation.

    Attributes:
        model_title: Title of the model.
        benchmark_title: Title of the benchmark.
        design: Design of the benchmark (``claims.Design``), which states how the two sides were chosen.
        design_stated_by: Person who stated the design, or None.
        member_before: Latest date of members, if labels follow from dates.
        nonmember_from: Earliest date of non-members, if labels follow from dates.
        named: Headline detector that the user named, or None.
        handed_over: True if the user supplied the scores, False if an audit computed them.
        audited: Number of groups of the evaluation split with texts of unknown membership.
        scored: Settings with scores: those at their defaults, or all if none is at its default.
        fewest_groups: Number of groups of the side with fewer groups, or None if a side has no groups.
    """

    model_title: str
    benchmark_title: str
    design: str | None
    design_stated_by: str | None = None
    member_before: str | None = None
    nonmember_from: str | None = None
    named: str | None = None
    handed_over: bool = False
    audited: int = 0
    scored: Sequence[Setting] = ()
    fewest_groups: int | None = None


def answer_pair(pair: Pair, tables: Mapping[str, pa.Table], pair_facts: PairFacts, run_id: str) -> Row:
    """Return the answer of a model on a benchmark as a row of the table ``pair_answers``.

    Args:
        pair: The model and the benchmark.
        tables: Tables of one evaluation by name.
        pair_facts: Facts that are known without an evaluation.
        run_id: Run of the evaluation.
    """
    evaluations = _read_default_rows(tables["evaluations"])
    tests = _read_default_rows(tables["group_tests"])
    setting, reason_of_choice = _choose_headline_setting(_skip_blind_control(evaluations), tests, pair_facts)
    quoted_rate = None
    # Without audited texts, the rates describe members and non-members together and are not quoted.
    if pair_facts.audited:
        quoted_rate = _find_flagged_rate(_read_default_rows(tables["contamination_rates"]), setting)
    whole_set = _find_whole_set_direction(tables["corpus_tests"])
    findings = _collect_findings(evaluations, tests, setting, pair_facts, whole_set, quoted_rate)
    detector, parameters = setting or (None, None)
    document_columns: dict[str, object] = dict.fromkeys((*_DOCUMENT_COLUMNS, "calibration_groups_in_all"))
    if findings.documents is not None:
        document_columns = {name: getattr(findings.documents, name) for name in _DOCUMENT_COLUMNS}
        document_columns["calibration_groups_in_all"] = _count_calibration_groups(tables["decisions"], setting)
    return {
        "model": pair.model,
        "benchmark": pair.benchmark,
        **answer_rules.build_answer(findings, pair_facts.model_title, pair_facts.benchmark_title),
        "sides": findings.sides,
        "claim_level": findings.claim_level,
        "claim_stated_by": findings.stated_by,
        "split_verdict": findings.split_verdict,
        "detector": detector,
        "detector_chosen": reason_of_choice,
        "parameters": parameters,
        "warning": findings.warning,
        **document_columns,
        "run_id": run_id,
    }


def _read_default_rows(table: pa.Table) -> list[Row]:
    """Return the rows of detectors at default parameters."""
    return list(filter(itemgetter("is_default"), table.to_pylist()))


def _skip_blind_control(evaluations: Sequence[Row]) -> list[Row]:
    return [row for row in evaluations if row["detector"] != BLIND_CONTROL]


def _find_whole_set_direction(corpus_tests: pa.Table) -> str | None:
    """Return the direction that dataset inference found, or None without such a test."""
    for row in corpus_tests.to_pylist():
        if row["test"] == "dataset_inference":
            direction: str | None = row["direction"]
            return direction
    return None


def _collect_findings(
    evaluations: Sequence[Row],
    tests: Sequence[Row],
    setting: Setting | None,
    pair_facts: PairFacts,
    whole_set: str | None,
    quoted_rate: Row | None,
) -> PairFindings:
    """Collect the findings of the headline setting, or of every setting if there is none.

    Args:
        evaluations: Evaluations at default parameters.
        tests: Tests of documents at default parameters.
        setting: The headline detector and its parameters.
        pair_facts: Facts that are known without an evaluation.
        whole_set: Direction that dataset inference found.
        quoted_rate: Row of ``contamination_rates`` that the first screen quotes.
    """
    detectors = _skip_blind_control(evaluations)
    audited_tests: list[Row] = []
    if pair_facts.audited:
        audited_tests = [row for row in tests if row["label"] is None]
    headline_rows = _select_setting(detectors, setting)
    # Without a headline detector, claim level, verdict and warning are those of the first detector.
    first_row = next(iter(headline_rows), None) or min(detectors, key=_get_setting, default=None)
    claim_level = _find_claim_level(first_row, tests, setting)
    split_verdict = None
    warning = None
    fewest_groups = None
    if first_row is not None:
        split_verdict = first_row["split_verdict"]
        auroc = _find_estimate(detectors, _get_setting(first_row), "auroc")
        if auroc is not None and auroc.value is not None:
            warning = warn_of_few_texts(first_row["n_members"], first_row["n_nonmembers"])
            fewest_groups = pair_facts.fewest_groups
    blind = _find_blind_auroc(evaluations)
    every: Sequence[DetectorFindings] = ()
    if setting is None:
        every = _summarise_every_setting(detectors, audited_tests, tests)
    return PairFindings(
        sides=_determine_compared_sides(detectors),
        claim_level=claim_level,
        split_verdict=split_verdict,
        auroc=_find_estimate(headline_rows, setting, "auroc"),
        margin=_find_estimate(headline_rows, setting, "auroc_margin"),
        blind=blind,
        every=every,
        documents=_summarise_documents(audited_tests, tests, setting),
        audited=pair_facts.audited,
        whole_set=whole_set,
        **_get_flagged_fields(quoted_rate),
        warning=warning,
        fewest_groups=fewest_groups,
        handed_over=pair_facts.handed_over,
        stated_by=find_claim_source(claim_level, pair_facts.design_stated_by, blind.value if blind else None),
        design=pair_facts.design,
        design_stated_by=pair_facts.design_stated_by,
        member_before=pair_facts.member_before,
        nonmember_from=pair_facts.nonmember_from,
    )


def _get_setting(row: Row) -> Setting:
    return row["detector"], row["parameters"]


def _determine_compared_sides(detectors: Sequence[Row]) -> answer_rules.ComparedSides:
    if not detectors:
        return "none"
    for row in detectors:
        if is_against_held_out(row["method"]):
            return "audited against held-out"
    return "labelled"


def _find_blind_auroc(evaluations: Sequence[Row]) -> MetricEstimate | None:
    for row in evaluations:
        if row["detector"] == BLIND_CONTROL:
            return _find_estimate(evaluations, _get_setting(row), "auroc")
    return None


def _get_flagged_fields(rate: Row | None) -> dict[str, Any]:
    """Return the fields of PairFindings about the share of flagged texts."""
    if rate is None:
        return {}
    return {
        "flagged": MetricEstimate(rate["flagged"], rate["flagged_low"], rate["flagged_high"]),
        "flagged_alpha": rate["alpha"],
        "flagged_is_certified": rate["rule"] == "certified",
    }


def _choose_headline_setting(
    detectors: Sequence[Row], tests: Sequence[Row], pair_facts: PairFacts
) -> tuple[Setting | None, str | None]:
    """Return the headline setting and the reason for its choice, or None twice if none of several detectors was named.

    The setting is chosen among the evaluated settings. Without evaluations it is chosen among the tested settings, and
    without tests among the scored settings.
    """
    evaluated = {_get_setting(row) for row in detectors if row["n_members"] + row["n_nonmembers"] > 0}
    tested = set(map(_get_setting, tests))
    for settings in filter(None, (evaluated, tested, set(pair_facts.scored))):
        detector = choose_headline_detector({name for name, _ in settings}, pair_facts.named)
        if detector is not None:
            setting = min(setting for setting in settings if setting[0] == detector)
            return setting, _classify_headline_choice(detector, pair_facts.named)
        if pair_facts.named is None:
            break
    return None, None


def _classify_headline_choice(detector: str, requested_detector: str | None) -> str:
    """Return why a detector is the headline detector.

    It was named by the user ("named"), it is a preferred detector ("default"), or it is the only detector ("alone").
    """
    if requested_detector:
        return "named"
    if detector in PREFERRED:
        return "default"
    return "alone"


def _find_claim_level(evaluation: Row | None, tests: Sequence[Row], setting: Setting | None) -> str | None:
    if evaluation is not None:
        return str(evaluation["claim_level"])
    levels = {row["claim_level"] for row in _select_setting(tests, setting) or tests}
    return min(levels, default=None)


def _find_estimate(evaluations: Sequence[Row], setting: Setting | None, metric: str) -> MetricEstimate | None:
    for row in evaluations:
        if (_get_setting(row), row["metric"]) == (setting, metric):
            return MetricEstimate(row["value"], row["ci_low"], row["ci_high"], row["method"])
    return None


def _find_flagged_rate(rates: Sequence[Row], setting: Setting | None) -> Row | None:
    """Return the rate of all audited texts at the threshold that the first screen quotes, or None."""
    candidates = [row for row in _select_setting(rates, setting) if row["unit"] == "benchmark"]
    for chosen_rule in CHOSEN_RULES:
        for row in candidates:
            if (row["rule"], row["alpha"]) == chosen_rule:
                return row
    return next(iter(candidates), None)


def build_rule_place_sql() -> str:
    """Build the SQL expression that ranks a threshold (``rule``, ``alpha``). The lowest rank is quoted."""
    places = (
        f"WHEN rule = '{rule}' AND alpha IS NOT DISTINCT FROM {alpha or 'NULL'} THEN {place}"
        for place, (rule, alpha) in enumerate(CHOSEN_RULES)
    )
    return f"CASE {' '.join(places)} ELSE {len(CHOSEN_RULES)} END"


def _count_above_all(tests: Sequence[Row]) -> int:
    """Count the tested documents of a setting that score higher than every comparison document.

    Their p-value is 1 / (number of comparison documents + 1).
    """
    return sum(row["p_value"] * (row["n_calibration_groups"] + 1) < 1.5 for row in tests)


def _find_direction(tests: Sequence[Row]) -> str | None:
    return min((row["direction"] for row in tests if row["direction"] is not None), default=None)


def _summarise_every_setting(
    detectors: Sequence[Row], audited_tests: Sequence[Row], tests: Sequence[Row]
) -> list[DetectorFindings]:
    """Return the findings of every evaluated or tested setting, ordered by name."""
    settings = set(map(_get_setting, (*detectors, *audited_tests)))
    every = []
    for setting in sorted(settings):
        auroc = _find_estimate(detectors, setting, "auroc") or MetricEstimate(None)
        every.append(DetectorFindings(setting[0], auroc, _find_direction(_select_setting(tests, setting))))
    return every


def _select_setting(rows: Sequence[Row], setting: Setting | None) -> list[Row]:
    return [row for row in rows if _get_setting(row) == setting]


def _summarise_documents(
    audited_tests: Sequence[Row], tests: Sequence[Row], setting: Setting | None
) -> DocumentFindings | None:
    """Summarise the tests of the audited documents, by the headline setting or by every setting if there is none."""
    if setting is not None:
        audited_tests = _select_setting(audited_tests, setting)
        tests = _select_setting(tests, setting)
    if not audited_tests:
        return None
    if setting is not None:
        return _summarise_by_one_setting(audited_tests, tests)
    return _summarise_by_every_setting(audited_tests, tests)


def _summarise_by_one_setting(audited_tests: Sequence[Row], tests: Sequence[Row]) -> DocumentFindings:
    n_tests = len(audited_tests)
    calibration_groups = min(map(itemgetter("n_calibration_groups"), tests))
    return DocumentFindings(
        tested=n_tests,
        standing_out=sum(row["q_bh"] <= Q_LEVEL for row in audited_tests),
        detectors=1,
        tests=n_tests,
        can_stand_out=n_tests,
        direction=_find_direction(tests),
        calibration_groups=calibration_groups,
        smallest_q=answer_rules.compute_smallest_q(calibration_groups, n_tests),
        above_all=_count_above_all(audited_tests),
    )


def _summarise_by_every_setting(audited_tests: Sequence[Row], tests: Sequence[Row]) -> DocumentFindings:
    settings = set(map(_get_setting, audited_tests))
    n_groups = len(set(map(itemgetter("group"), audited_tests)))
    can_stand_out = [row for row in audited_tests if row["direction"] != OPPOSITE]
    standing_out = {row["group"] for row in can_stand_out if row["q_ledger"] <= Q_LEVEL}
    calibration_groups = min(row["n_calibration_groups"] for row in tests if _get_setting(row) in settings)
    n_tests = max(map(itemgetter("n_ledger"), audited_tests))
    factor = compute_benjamini_yekutieli_factor(n_tests) * n_tests / max(1, len(can_stand_out))
    return DocumentFindings(
        tested=n_groups,
        standing_out=len(standing_out),
        detectors=len(settings),
        tests=n_tests,
        can_stand_out=len(can_stand_out),
        direction=_find_common_direction(tests, settings),
        calibration_groups=calibration_groups,
        smallest_q=answer_rules.compute_smallest_q(calibration_groups, n_groups, factor),
        above_all=max(_count_above_all(_select_setting(can_stand_out, setting)) for setting in settings),
    )


def _find_common_direction(tests: Sequence[Row], settings: set[Setting]) -> str | None:
    """Return the common direction of the settings that do not run against training.

    The result is "none" if their directions differ, and "opposite" if all settings run against training.
    """
    directions = {_find_direction(_select_setting(tests, setting)) for setting in settings} - {OPPOSITE}
    if not directions:
        return OPPOSITE
    if len(directions) > 1:
        return "none"
    return directions.pop()


def _count_calibration_groups(decisions: pa.Table, setting: Setting | None) -> int | None:
    counts: list[int] = []
    for row in _read_default_rows(decisions):
        if setting is None or row["detector"] == setting[0]:
            counts.append(row["n_calibration_groups"])
    return max(counts, default=None)


_DOCUMENT_COLUMNS = (
    "tested",
    "standing_out",
    "detectors",
    "tests",
    "can_stand_out",
    "direction",
    "calibration_groups",
    "smallest_q",
)
