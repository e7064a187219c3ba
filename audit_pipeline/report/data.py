"""The reports as data: every model's, and the one across models, read from the warehouse.

What belongs here: putting a report together. What does not: the answers (report_pairs.py), the evidence on one pair
(report_section.py), what stands behind the answers (report_background.py), sentences (report_words.py), HTML.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version

import duckdb

from audit_pipeline.report import choice as report_choice
from audit_pipeline.report.background import (
    gaps_of,
    read_benchmarks,
    read_changes,
    read_corpus_tests,
    read_costs,
    read_documents_changes,
    read_instrument,
    read_lineage,
    read_models,
    read_older_models,
    read_splits,
    read_studies,
    read_timeline,
    set_apart,
)
from audit_pipeline.report.coverage import coverage_of
from audit_pipeline.report.document import (
    Answer,
    Asked,
    CorpusTest,
    InstrumentCheck,
    Left,
    Manifest,
    Report,
    Section,
    Study,
)
from audit_pipeline.report.limits import LIMITS
from audit_pipeline.report.pairs import read_answers
from audit_pipeline.report.provenance import (
    Pair,
    Settings,
    commands,
    read_given,
    read_settings,
)
from audit_pipeline.report.rows import Row, rows
from audit_pipeline.report.section import Chosen, read_section
from audit_pipeline.report.summary import instrument_words, summary_of
from audit_pipeline.report.words import (
    question,
)

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True)
class Site:
    """What all reports share, read once. ``answers`` are of all pairs but those of controls, in no order.

    ``controls`` are the models that were trained here; they have a report of their own and stand in the instrument
    check, but no answer among those of the others, unless there are no others. ``given`` are the benchmarks that are
    tables of scores handed over, ``settings`` the options of each pair's; ``tested`` the models with a test of a whole
    set.
    """

    answers: Mapping[Pair, Answer]
    controls: frozenset[str]
    findings: int
    instrument: Sequence[InstrumentCheck]
    studies: Sequence[Study]
    coverage: Sequence[Row]
    not_audited: Sequence[Row]
    config_is_known: bool
    given: frozenset[str]
    settings: Mapping[Pair, Settings]
    gaps: Sequence[Row]
    tested: frozenset[str]

    @property
    def models(self) -> list[str]:
        """The models that have a page: those with an answer, and those of which a whole set was tested."""
        return sorted({model for model, _ in self.answers} | self.tested)


def read_site(connection: Connection) -> Site:
    """What all reports share."""
    settings = read_settings(connection)
    return Site(
        answers=read_answers(connection, settings),
        controls=frozenset(row["name"] for row in rows(connection, _CONTROL_MODELS)),
        findings=rows(connection, "SELECT count(*) AS findings FROM leaderboard")[0]["findings"],
        instrument=read_instrument(connection),
        studies=read_studies(connection),
        coverage=rows(connection, "FROM coverage"),
        not_audited=rows(connection, "FROM not_audited"),
        config_is_known=bool(rows(connection, _CONFIG_IS_KNOWN)),
        given=read_given(connection),
        settings=settings,
        gaps=rows(connection, "FROM lineage_gaps WHERE rows > 0 OR starts_with(what, 'a damaged')"),
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
    again, more_commands = commands(answers, site.given, site.settings)
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

_ANSWERING_RUNS = """
SELECT model, benchmark, coalesce(max(run_id) FILTER ("table" = 'evaluations'), max(run_id)) AS run_id
FROM current_runs SEMI JOIN shown_pairs USING (model, benchmark)
WHERE "table" IN ('scores', 'evaluations') GROUP BY ALL
"""
