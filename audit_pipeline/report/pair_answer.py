"""The answer of one pair, from the tables of its findings: a row of PAIR_ANSWERS, which terminal, report and UI read.

What belongs here: the findings that the rules go by (answer_rules.py), taken from those tables; the answer as a row.
What does not: the rules (answer_rules.py); reading and writing the tables (pipeline/evaluate_pair.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from audit_pipeline.report.answer_rules import (
    OPPOSITE,
    DetectorFindings,
    DocumentFindings,
    MetricEstimate,
    PairFindings,
    Sides,
    build_answer,
    compute_benjamini_yekutieli_factor,
    compute_smallest_q,
)
from audit_pipeline.report.display_priority import CHOSEN_RULES, classify_headline_choice
from audit_pipeline.report.sentences import Q_LEVEL
from audit_pipeline.splits.blind_controls import NAME as BLIND_CONTROL
from audit_pipeline.statistics.claims import find_claim_source, warn_of_few_texts
from audit_pipeline.statistics.evaluate_options import choose_headline_detector
from audit_pipeline.statistics.score_columns import is_against_held_out
from audit_pipeline.tables import Pair

Row = Mapping[str, Any]
Setting = tuple[str, str]
"""A detector and its parameters."""


@dataclass(frozen=True)
class PairFacts:
    """What is known of a pair apart from its findings.

    ``named``: the detector that was named to answer; None: one of the usual ones does. ``handed_over``: the scores are
    a user's own. ``audited``: groups of the evaluation split with texts whose membership is unknown. ``scored``: the
    settings that have scores: those at their defaults, or all where none is. ``fewest_groups``: of the two sides that
    an AUROC compares, the groups of the one that has fewer; None where a side has none.
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
    """The answer of a pair as a row of PAIR_ANSWERS; ``tables``: those that it is made from, of one run, by name.

    The first of these steps in which a detector answers decides which it is: evaluated, tested, scored.
    """
    evaluated = [row for row in tables["evaluations"].to_pylist() if row["is_default"]]
    tests = [row for row in tables["group_tests"].to_pylist() if row["is_default"]]
    detectors = [row for row in evaluated if row["detector"] != BLIND_CONTROL]
    setting, chosen = _choose_headline_setting(detectors, tests, pair_facts)
    corpus_tests = tables["corpus_tests"].to_pylist()
    whole_set = next((row["direction"] for row in corpus_tests if row["test"] == "dataset_inference"), None)
    # Where every text is labelled, the rates are of both sides together.
    quoted = _find_flagged_rate(tables["contamination_rates"].to_pylist(), setting) if pair_facts.audited else None
    found = _collect_findings(evaluated, tests, setting, pair_facts, whole_set, quoted)
    documents = found.documents
    detector, parameters = setting or (None, None)
    return {
        "model": pair.model,
        "benchmark": pair.benchmark,
        **build_answer(found, pair_facts.model_title, pair_facts.benchmark_title),
        "sides": found.sides,
        "claim_level": found.claim_level,
        "claim_stated_by": found.stated_by,
        "split_verdict": found.split_verdict,
        "detector": detector,
        "detector_chosen": chosen,
        "parameters": parameters,
        "warning": found.warning,
        **{name: None if documents is None else getattr(documents, name) for name in _DOCUMENT_COLUMNS},
        "calibration_groups_in_all": None
        if documents is None
        else _count_calibration_groups(tables["decisions"], setting),
        "run_id": run_id,
    }


def _collect_findings(
    evaluations: Sequence[Row],
    tests: Sequence[Row],
    setting: Setting | None,
    pair_facts: PairFacts,
    whole_set: str | None,
    quoted: Row | None,
) -> PairFindings:
    """The findings that the answer rests on: of the ``setting`` that answers, or of every one where none does.

    ``evaluations`` and ``tests``: the rows at default parameters. ``whole_set``: the direction that dataset inference
    found. ``quoted``: the row of CONTAMINATION_RATES that the first screen quotes.
    """
    detectors = [row for row in evaluations if row["detector"] != BLIND_CONTROL]
    board = next((row for row in detectors if _setting_of(row) == setting), None) or min(
        detectors, key=_setting_of, default=None
    )
    tested = [row for row in tests if row["label"] is None and pair_facts.audited]
    level = _find_claim_level(board, tests, setting)
    answers = board is not None and _setting_of(board) == setting
    blind_setting = next((_setting_of(row) for row in evaluations if row["detector"] == BLIND_CONTROL), None)
    blind = _find_estimate(evaluations, blind_setting, "auroc")
    sides: Sides = "none"
    if detectors:
        against = any(is_against_held_out(row["method"]) for row in detectors)
        sides = "audited against held-out" if against else "labelled"
    of_board = None if board is None else _find_estimate(detectors, _setting_of(board), "auroc")
    warning = None
    if board is not None and of_board is not None and of_board.value is not None:
        warning = warn_of_few_texts(board["n_members"], board["n_nonmembers"])
    return PairFindings(
        sides=sides,
        claim_level=level,
        split_verdict=None if board is None else board["split_verdict"],
        auroc=_find_estimate(detectors, setting, "auroc") if answers else None,
        margin=_find_estimate(detectors, setting, "auroc_margin") if answers else None,
        blind=blind,
        every=_summarise_every_setting(detectors, tested, tests) if setting is None else (),
        documents=_summarise_documents(tested, tests, setting),
        audited=pair_facts.audited,
        whole_set=whole_set,
        flagged=None
        if quoted is None
        else MetricEstimate(quoted["flagged"], quoted["flagged_low"], quoted["flagged_high"]),
        flagged_alpha=None if quoted is None else quoted["alpha"],
        flagged_is_certified=quoted is not None and quoted["rule"] == "certified",
        warning=warning,
        fewest_groups=None if of_board is None or of_board.value is None else pair_facts.fewest_groups,
        handed_over=pair_facts.handed_over,
        stated_by=find_claim_source(level, pair_facts.design_stated_by, None if blind is None else blind.value),
        design=pair_facts.design,
        design_stated_by=pair_facts.design_stated_by,
        member_before=pair_facts.member_before,
        nonmember_from=pair_facts.nonmember_from,
    )


def _setting_of(row: Row) -> Setting:
    return row["detector"], row["parameters"]


def _choose_headline_setting(
    detectors: Sequence[Row], tests: Sequence[Row], pair_facts: PairFacts
) -> tuple[Setting | None, str | None]:
    """The setting that answers, and why it does; None where nobody named one of several."""
    steps = (
        {_setting_of(row) for row in detectors if row["n_members"] + row["n_nonmembers"] > 0},
        {_setting_of(row) for row in tests},
        set(pair_facts.scored),
    )
    for settings in filter(None, steps):
        detector = choose_headline_detector({name for name, _ in settings}, pair_facts.named)
        if detector is not None:
            setting = min(setting for setting in settings if setting[0] == detector)
            return setting, classify_headline_choice(detector, pair_facts.named)
        if pair_facts.named is None:
            break
    return None, None


def _find_claim_level(evaluation: Row | None, tests: Sequence[Row], setting: Setting | None) -> str | None:
    if evaluation is not None:
        return str(evaluation["claim_level"])
    own = [row["claim_level"] for row in tests if _setting_of(row) == setting]
    return min(own or [row["claim_level"] for row in tests], default=None)


def _find_estimate(evaluations: Sequence[Row], setting: Setting | None, metric: str) -> MetricEstimate | None:
    row = next((row for row in evaluations if (_setting_of(row), row["metric"]) == (setting, metric)), None)
    return None if row is None else MetricEstimate(row["value"], row["ci_low"], row["ci_high"], row["method"])


def _find_flagged_rate(rates: Sequence[Row], setting: Setting | None) -> Row | None:
    """The share of all audited texts that a threshold of the setting flags: of the one that the first screen quotes."""
    places = {rule: place for place, rule in enumerate(CHOSEN_RULES)}
    known = [row for row in rates if row["unit"] == "benchmark" and row["is_default"] and _setting_of(row) == setting]
    return min(known, key=lambda row: places.get((row["rule"], row["alpha"]), len(places)), default=None)


def _count_above_all(tests: Sequence[Row]) -> int:
    """How many of the tested documents of a setting score higher than every document they were compared with."""
    return sum(row["p_value"] * (row["n_calibration_groups"] + 1) < 1.5 for row in tests)


def _find_direction(tests: Sequence[Row]) -> str | None:
    return min((row["direction"] for row in tests if row["direction"] is not None), default=None)


def _summarise_every_setting(
    detectors: Sequence[Row], audited_tests: Sequence[Row], tests: Sequence[Row]
) -> list[DetectorFindings]:
    """What every setting came to, evaluated or tested, by name."""
    settings = sorted({_setting_of(row) for row in (*detectors, *audited_tests)})
    return [
        DetectorFindings(
            setting[0],
            _find_estimate(detectors, setting, "auroc") or MetricEstimate(None),
            _find_direction([row for row in tests if _setting_of(row) == setting]),
        )
        for setting in settings
    ]


def _summarise_documents(
    audited_tests: Sequence[Row], tests: Sequence[Row], setting: Setting | None
) -> DocumentFindings | None:
    """What the audited documents (``audited_tests``) came to, by one setting, or by all where none was named."""
    if setting is not None:
        own = [row for row in audited_tests if _setting_of(row) == setting]
        if not own:
            return None
        calibration = min(row["n_calibration_groups"] for row in tests if _setting_of(row) == setting)
        return DocumentFindings(
            tested=len(own),
            standing_out=sum(row["q_bh"] <= Q_LEVEL for row in own),
            detectors=1,
            tests=len(own),
            can_stand_out=len(own),
            direction=_find_direction([row for row in tests if _setting_of(row) == setting]),
            calibration_groups=calibration,
            smallest_q=compute_smallest_q(calibration, len(own)),
            above_all=_count_above_all(own),
        )
    if not audited_tests:
        return None
    settings = {_setting_of(row) for row in audited_tests}
    able = [row for row in audited_tests if row["direction"] != OPPOSITE]
    calibration = min(row["n_calibration_groups"] for row in tests if _setting_of(row) in settings)
    groups, n_tests = {row["group"] for row in audited_tests}, max(row["n_ledger"] for row in audited_tests)
    return DocumentFindings(
        tested=len(groups),
        standing_out=len({row["group"] for row in able if row["q_ledger"] <= Q_LEVEL}),
        detectors=len(settings),
        tests=n_tests,
        can_stand_out=len(able),
        direction=_find_common_direction(tests, settings),
        calibration_groups=calibration,
        smallest_q=compute_smallest_q(
            calibration, len(groups), compute_benjamini_yekutieli_factor(n_tests) * n_tests / max(1, len(able))
        ),
        above_all=max(_count_above_all([row for row in able if _setting_of(row) == of]) for of in settings),
    )


def _find_common_direction(tests: Sequence[Row], settings: set[Setting]) -> str | None:
    """The direction that all settings share that are not known to run against training; opposite where all do."""
    found = {_find_direction([row for row in tests if _setting_of(row) == setting]) for setting in settings}
    others = found - {OPPOSITE}
    if not others:
        return OPPOSITE
    return "none" if len(others) > 1 else others.pop()


def _count_calibration_groups(decisions: pa.Table, setting: Setting | None) -> int | None:
    return max(
        (
            row["n_calibration_groups"]
            for row in decisions.to_pylist()
            if row["is_default"] and (setting is None or row["detector"] == setting[0])
        ),
        default=None,
    )


_DOCUMENT_COLUMNS = (
    *("tested", "standing_out", "detectors", "tests", "can_stand_out", "direction"),
    *("calibration_groups", "smallest_q"),
)
