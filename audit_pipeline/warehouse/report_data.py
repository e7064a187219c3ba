"""The reports as data: every model's, and the one across models, read from the warehouse.

What belongs here: the answers, and putting a report together. What does not: the evidence on one pair
(report_section.py), what stands behind the answers (report_background.py), sentences (report_words.py), HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

import duckdb

from audit_pipeline.detectors.registry import is_default
from audit_pipeline.evaluation.audited_side import IN_WORDS as AGAINST_HELD_OUT
from audit_pipeline.evaluation.headline import headline_detector
from audit_pipeline.warehouse import report_choice
from audit_pipeline.warehouse.report_background import (
    commands,
    gaps_of,
    read_benchmarks,
    read_changes,
    read_corpus_tests,
    read_costs,
    read_documents_changes,
    read_given,
    read_instrument,
    read_lineage,
    read_models,
    read_older_models,
    read_splits,
    read_studies,
    read_timeline,
    set_apart,
)
from audit_pipeline.warehouse.report_coverage import coverage_of
from audit_pipeline.warehouse.report_document import (
    Answer,
    Asked,
    CorpusTest,
    Documents,
    Estimate,
    InstrumentCheck,
    Left,
    Manifest,
    Report,
    Section,
    Sides,
    Study,
)
from audit_pipeline.warehouse.report_rows import Row, cut, estimate, rows
from audit_pipeline.warehouse.report_section import Chosen, chosen_rule, read_section
from audit_pipeline.warehouse.report_words import (
    LIMITS,
    Q_LEVEL,
    answer_words,
    claim_words,
    instrument_words,
    question,
    smallest_q,
    summary_of,
    verdict_words,
)
from audit_pipeline.warehouse.schema import BLIND_CONTROL

Connection = duckdb.DuckDBPyConnection
Pair = tuple[str, str]


@dataclass(frozen=True)
class Site:
    """What all reports share, read once. ``answers`` are of all pairs but those of controls, in no order.

    ``controls`` are the models that were trained here; they have a report of their own and stand in the instrument
    check, but no answer among those of the others, unless there are no others. ``given`` are the benchmarks that are
    tables of scores handed over, with their files; ``tested`` the models with a test of a whole set.
    """

    answers: Mapping[Pair, Answer]
    controls: frozenset[str]
    findings: int
    instrument: Sequence[InstrumentCheck]
    studies: Sequence[Study]
    coverage: Sequence[Row]
    not_audited: Sequence[Row]
    config_is_known: bool
    given: Mapping[str, str]
    gaps: Sequence[Row]
    tested: frozenset[str]

    @property
    def models(self) -> list[str]:
        """The models that have a page: those with an answer, and those of which a whole set was tested."""
        return sorted({model for model, _ in self.answers} | self.tested)


def read_site(connection: Connection) -> Site:
    """What all reports share."""
    answers = _answers(connection)
    return Site(
        answers=answers,
        controls=frozenset(row["name"] for row in rows(connection, _CONTROL_MODELS)),
        findings=rows(connection, "SELECT count(*) AS findings FROM leaderboard")[0]["findings"],
        instrument=read_instrument(connection),
        studies=read_studies(connection),
        coverage=rows(connection, "FROM coverage"),
        not_audited=rows(connection, "FROM not_audited"),
        config_is_known=bool(rows(connection, _CONFIG_IS_KNOWN)),
        given=read_given(connection),
        gaps=rows(connection, "FROM lineage_gaps WHERE rows > 0"),
        tested=frozenset(row["model"] for row in rows(connection, "SELECT DISTINCT model FROM current_corpus_tests")),
    )


def model_reports(
    connection: Connection, site: Site, *, include_text: bool, written_at: datetime, layout: str
) -> Iterator[tuple[str, Report]]:
    """Every model's report, one after the other."""
    most = report_choice.sections_a_model(len(site.models))
    for model in site.models:
        mine = report_choice.in_order([answer for (name, _), answer in site.answers.items() if name == model])
        yield (
            model,
            _report(
                connection,
                site,
                mine,
                kind="model",
                title=model,
                sections=most,
                include_text=include_text,
                written_at=written_at,
                layout=layout,
            ),
        )


def report_across(
    connection: Connection, site: Site, *, include_text: bool, written_at: datetime, layout: str
) -> Report:
    """The report across models: every answer, and what stands behind all of them."""
    others = [answer for (model, _), answer in site.answers.items() if model not in site.controls]
    return _report(
        connection,
        site,
        report_choice.in_order(others or list(site.answers.values())),
        kind="across",
        title="Contamination report",
        sections=0,
        include_text=include_text,
        written_at=written_at,
        layout=layout,
    )


def _report(
    connection: Connection,
    site: Site,
    answers: Sequence[Answer],
    *,
    kind: str,
    title: str,
    sections: int,
    include_text: bool,
    written_at: datetime,
    layout: str,
) -> Report:
    is_model = kind == "model"
    shown = list(answers[: report_choice.MAX_ANSWERS])
    pairs = [(answer.model, answer.benchmark) for answer in shown]
    set_apart(connection, answers, shown, title if is_model else None)
    lineage, environments, entries = read_lineage(connection)
    numbers = {(one.table, one.partition, one.run_id): one.number for one in lineage}
    runs = {(row["model"], row["benchmark"]): row["run_id"] for row in rows(connection, _ANSWERING_RUNS)}
    shown = [
        answer.model_copy(
            update={
                "section": place if place <= sections else None,
                "lineage": numbers.get(
                    (
                        "evaluations" if answer.claim_level else "scores",
                        f"{answer.benchmark}|{answer.model}",
                        runs.get((answer.model, answer.benchmark), ""),
                    )
                ),
            }
        )
        for place, answer in enumerate(shown, start=1)
    ]
    tests, more_tests = read_corpus_tests(connection, numbers)
    asked = _asked(answers, tests, more_tests, "this model’s" if is_model else "these models’")
    older, more_older = read_older_models(connection)
    timeline, more_timeline = ([], 0) if is_model else read_timeline(connection)
    changes, more_changes = read_changes(connection, every_detector=is_model)
    documents_changes, more_documents_changes = read_documents_changes(connection)
    costs, cost_seconds, more_costs = read_costs(connection)
    benchmarks, more_benchmarks = read_benchmarks(connection)
    again, more_commands = commands(answers, site.given)
    own = [row for row in site.coverage if not is_model or row["model"] == title]
    own_not_done = [row for row in site.not_audited if not is_model or row["model"] == title]
    gaps = [row for row in site.gaps if not is_model or _concerns(row, pairs)]
    return Report(
        kind="model" if is_model else "across",
        title=title,
        written_at=written_at,
        includes_text=include_text,
        asked=asked,
        summary=summary_of(shown, asked, tests),
        answers=shown,
        instrument_words=instrument_words(site.instrument),
        instrument=list(site.instrument),
        studies=[] if is_model and title not in site.controls else list(site.studies),
        splits=read_splits(connection, numbers),
        older_models=older,
        timeline=timeline,
        corpus_tests=tests,
        sections=_sections(connection, shown, include_text=include_text),
        changes=changes,
        documents_changes=documents_changes,
        coverage=coverage_of(own, own_not_done, config_is_known=site.config_is_known, given=site.given),
        costs=costs,
        cost_seconds=cost_seconds,
        limits=list(LIMITS),
        models=read_models(connection),
        benchmarks=benchmarks,
        manifest=Manifest(
            commands=again,
            more_commands=more_commands,
            written_with=version("corpus-audit"),
            layout=layout,
            environments=environments,
        ),
        lineage=lineage,
        gaps=gaps_of(gaps),
        left_out=Left(
            answers=len(answers) - len(shown),
            sections=max(0, len(answers) - sections) if is_model else 0,
            lineage=max(0, entries - len(lineage)),
            gaps=max(0, len(gaps) - len(gaps_of(gaps))),
            changes=more_changes,
            documents_changes=more_documents_changes,
            corpus_tests=more_tests,
            timeline=more_timeline,
            older_models=more_older,
            costs=more_costs,
            benchmarks=more_benchmarks,
        ),
    )


def _sections(connection: Connection, answers: Sequence[Answer], *, include_text: bool) -> list[Section]:
    return [
        read_section(
            connection,
            answer.section,
            Chosen(
                answer.model,
                answer.benchmark,
                answer.sides,
                answer.detector,
                answer.parameters,
                is_current=answer.is_current,
            ),
            include_text=include_text,
        )
        for answer in answers
        if answer.section is not None
    ]


def _concerns(gap: Row, pairs: Sequence[Pair]) -> bool:
    partitions = {f"{benchmark}|{model}" for model, benchmark in pairs} | {benchmark for _, benchmark in pairs}
    return gap["partition"] in partitions or gap["table"] == "documents"


def _asked(answers: Sequence[Answer], tests: Sequence[CorpusTest], more_tests: int, whose: str) -> Asked:
    known = [*(answer.audited_at for answer in answers), *(test.finished_at for test in tests)]
    times = [moment for moment in known if moment is not None]
    return Asked(
        question=question(whose),
        models=len({one.model for one in answers} | {test.model for test in tests}),
        benchmarks=len({answer.benchmark for answer in answers}),
        pairs=len(answers),
        tests=len(tests) + more_tests,
        first_audited=min(times, default=None),
        last_audited=max(times, default=None),
    )


_CONTROL_MODELS = "SELECT DISTINCT name FROM models WHERE name IS NOT NULL AND resolved_from LIKE 'control %'"

_CONFIG_IS_KNOWN = "SELECT 1 WHERE EXISTS (FROM configured_models) AND EXISTS (FROM configured_benchmarks)"

_PAIRS = """
SELECT runs.model, runs.benchmark, max(runs.finished_at) AS audited_at,
    max(benchmarks.design) AS design, max(benchmarks.manifest ->> 'description') AS description,
    coalesce(bool_and(runs.benchmark_digest = benchmarks.digest) FILTER (runs."table" = 'scores'), TRUE) AS is_current
FROM runs LEFT JOIN benchmarks ON benchmarks.benchmark = runs.benchmark
WHERE runs.is_current AND runs.model IS NOT NULL AND runs."table" IN ('scores', 'evaluations')
GROUP BY ALL ORDER BY runs.model, runs.benchmark
"""

_ANSWERING_RUNS = """
SELECT model, benchmark, coalesce(max(run_id) FILTER ("table" = 'evaluations'), max(run_id)) AS run_id
FROM current_runs SEMI JOIN shown_pairs USING (model, benchmark)
WHERE "table" IN ('scores', 'evaluations') GROUP BY ALL
"""

_LEADERBOARD = """
SELECT board.*, found.method FROM leaderboard AS board
LEFT JOIN (SELECT * FROM current_evaluations WHERE metric = 'auroc' AND is_default) AS found
    USING (model, benchmark, detector, parameters)
ORDER BY board.model, board.benchmark, board.detector, board.parameters
"""

_BLIND_METHODS = f"""
SELECT model, benchmark, method FROM current_evaluations WHERE detector = '{BLIND_CONTROL}' AND metric = 'auroc'
"""  # noqa: S608 - a name from schema.py

_SCORED = """
SELECT DISTINCT scored.model, scored.benchmark, scored.detector, scored.parameters
FROM scored_settings AS scored SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'scores') AS latest
    USING (model, benchmark, run_id)
WHERE scored.scored > 0 ORDER BY ALL
"""

# Groups without a label are audited ones, or of texts of both sides where no text is audited.
_TESTED = f"""
SELECT model, benchmark, detector, parameters, count(*) FILTER (label IS NULL) AS tested,
    count(*) FILTER (label IS NULL AND q_bh <= {Q_LEVEL}) AS standing_out,
    min(n_calibration_groups) AS calibration_groups, min(claim_level) AS claim_level,
    benchmark IN (SELECT benchmark FROM examples WHERE split = 'evaluation' AND label IS NULL) AS has_audited
FROM current_group_tests WHERE is_default GROUP BY ALL ORDER BY ALL
"""  # noqa: S608 - a number of report_words.py

_WHOLE_RATES = """
SELECT * FROM current_contamination_rates WHERE unit = 'benchmark' AND is_default
ORDER BY model, benchmark, detector, parameters, rule DESC, alpha DESC
"""


def _answers(connection: Connection) -> dict[Pair, Answer]:
    board = _by_pair(rows(connection, _LEADERBOARD))
    blind_methods = {(row["model"], row["benchmark"]): row["method"] for row in rows(connection, _BLIND_METHODS)}
    scored = _by_pair(rows(connection, _SCORED))
    tested = _by_pair(rows(connection, _TESTED))
    rates = _by_pair(rows(connection, _WHOLE_RATES))
    found = {}
    for row in rows(connection, _PAIRS):
        pair = row["model"], row["benchmark"]
        found[pair] = _answer(
            row,
            board.get(pair, []),
            scored.get(pair, []),
            tested.get(pair, []),
            rates.get(pair, []),
            blind_methods.get(pair),
        )
    return found


def _by_pair(found: Sequence[Row]) -> dict[Pair, list[Row]]:
    pairs: dict[Pair, list[Row]] = {}
    for row in found:
        pairs.setdefault((row["model"], row["benchmark"]), []).append(row)
    return pairs


def _answer(
    pair: Row,
    board: Sequence[Row],
    scored: Sequence[Row],
    tested: Sequence[Row],
    rates: Sequence[Row],
    blind_method: str | None,
) -> Answer:
    detector, parameters = _chosen(board, scored, tested)
    row = next((one for one in board if (one["detector"], one["parameters"]) == (detector, parameters)), None)
    sides = _sides(board)
    tests = next((one for one in tested if (one["detector"], one["parameters"]) == (detector, parameters)), None)
    is_audited = tests is not None and tests["has_audited"] and tests["tested"] > 0
    documents = _documents(tests, [one for one in rates if one["detector"] == detector]) if is_audited else None
    level = row["claim_level"] if row else tests["claim_level"] if tests else None
    verdict = row["split_verdict"] if row else None
    auroc = estimate(row, "auroc", row["method"]) if row else None
    words = answer_words(
        sides=sides,
        claim_level=level,
        split_verdict=verdict,
        auroc=auroc,
        margin=estimate(row, "margin") if row else None,
        documents=documents,
    )
    return Answer(
        model=pair["model"],
        benchmark=pair["benchmark"],
        description=cut(pair["description"], 400) if pair["description"] else None,
        design=pair["design"],
        sides=sides,
        outcome=words.outcome,
        headline=words.headline,
        explanation=words.explanation,
        claim_level=level,
        claim_in_words=claim_words(level) if level else None,
        split_verdict=verdict,
        verdict_in_words=verdict_words(verdict) if verdict else None,
        detector=detector,
        parameters=parameters,
        auroc=auroc,
        tpr_at_5_fpr=estimate(row, "tpr_at_5_fpr") if row else None,
        blind=estimate(row, "blind_auroc", blind_method) if row else None,
        strongest_control=row["worst_control"] if row else None,
        strongest_control_auroc=row["worst_control_auroc"] if row else None,
        documents=documents,
        audited_at=pair["audited_at"],
        is_current=row["is_current"] if row else pair["is_current"],
        section=None,
        lineage=None,
    )


def _chosen(board: Sequence[Row], scored: Sequence[Row], tested: Sequence[Row]) -> tuple[str | None, str | None]:
    """The detector that answers, with its default parameters: as evaluated, as tested, or by the registry."""
    for known in (
        [row for row in board if row["n"]],
        tested,
        [row for row in scored if is_default(row["detector"], row["parameters"])],
        scored,
    ):
        name = headline_detector({row["detector"] for row in known})
        if name is not None:
            return name, next(row["parameters"] for row in known if row["detector"] == name)
    return None, None


def _sides(board: Sequence[Row]) -> Sides:
    if any(str(row["method"] or "").startswith(AGAINST_HELD_OUT) for row in board):
        return "audited against held-out"
    return "labelled" if board else "none"


def _documents(tests: Row | None, rates: Sequence[Row]) -> Documents | None:
    if tests is None:
        return None
    rule = chosen_rule([(row["rule"], row["alpha"]) for row in rates])
    rate: Mapping[str, Any] | None = next((row for row in rates if (row["rule"], row["alpha"]) == rule), None)
    groups = tests["calibration_groups"]
    return Documents(
        tested=tests["tested"],
        standing_out=tests["standing_out"],
        calibration_groups=groups,
        smallest_q=smallest_q(groups, tests["tested"]),
        flagged=estimate(rate, "flagged") if rate else None,
        corrected=Estimate(
            value=rate["corrected"], low=rate["corrected_low"], high=rate["corrected_high"], method=rate["reason"]
        )
        if rate
        else None,
        alpha=rate["alpha"] if rate else None,
    )
