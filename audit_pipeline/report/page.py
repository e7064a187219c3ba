"""Pages as data: the sections, and what their queries yield of the warehouse, for one model or across models.

What belongs here: finding the sections in the folder sections/, what a query's head says of it, which pages there are,
the tables that their queries go by, running the queries. What does not: the queries (sections/, sql/), columns that
Python makes (section_data.py), rendering templates (html.py), files (files.py).

A section is two files of one name, NN_name.sql and NN_name.html.j2, and where its query is not enough a function
(section_data.py); NN is its place on the page. A folder of that name holds the parts of its rows, two files each as
well: they belong to the row of the same model and benchmark. A column in_all says how many rows there would be without
a limit; it counts and is no part of a row.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import duckdb

from audit_pipeline.report import display_priority
from audit_pipeline.report.section_data import SECTION_FUNCTIONS, Results, describe_results
from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables import PAIR_STATES, UNLEARNING_METRICS
from audit_pipeline.warehouse.query import open_read_only

SECTIONS = resources.files(__package__) / "sections"

_NAMED = re.compile(r"(\d+)_(\w+)\.sql")


@dataclass(frozen=True)
class SectionFiles:
    """A section: its query, the path of its template, and the sections of its rows."""

    name: str
    sql: str
    template: str
    parts: tuple[SectionFiles, ...]


@cache
def list_sections() -> tuple[SectionFiles, ...]:
    """All sections, in the order of the page."""
    found = [section for folder in (SECTIONS, *list_plugin_section_folders()) for section in _read_sections(folder, "")]
    return tuple(sorted(found, key=lambda section: section.template))


def list_plugin_section_folders() -> list[Traversable]:
    """The folders of sections that stages of installed packages bring."""
    return [stage.section for _, stage in load_stage_plugins() if getattr(stage, "section", None) is not None]


def _read_sections(folder: Traversable, prefix: str) -> tuple[SectionFiles, ...]:
    files = {file.name: file for file in folder.iterdir()}
    sections = []
    for name in sorted(filter(_NAMED.fullmatch, files)):
        stem = name.removesuffix(".sql")
        parts = _read_sections(files[stem], f"{prefix}{stem}/") if stem in files else ()
        sql = files[name].read_text(encoding="utf-8")
        sections.append(SectionFiles(stem.partition("_")[2], sql, f"{prefix}{stem}.html.j2", parts))
    return tuple(sections)


Connection = duckdb.DuckDBPyConnection
Kind = Literal["model", "across"]
Row = Mapping[str, Any]
Pair = tuple[str, str]

_PAGE = """
CREATE OR REPLACE TEMP TABLE page AS SELECT $kind::VARCHAR AS kind, $model::VARCHAR AS model,
    $includes_text::BOOLEAN AS includes_text, $sections::BIGINT AS sections
"""

_PAIRS = """
SELECT generate_subscripts($models::VARCHAR[], 1) AS place, unnest($models::VARCHAR[]) AS model,
    unnest($benchmarks::VARCHAR[]) AS benchmark, unnest($detectors::VARCHAR[]) AS detector,
    unnest($parameters::VARCHAR[]) AS parameters
"""

_PLACES = (
    # Worst first.
    f"status_place(status) AS list_position({[*PAIR_STATES]}, status)",
    f"metric_place(metric) AS list_position({[*UNLEARNING_METRICS]}, metric)",
    f"rule_place(rule, alpha) AS {display_priority.build_rule_place_sql()}",
)
"""Macros that order rows by lists of Python."""


class Rows(list[dict[str, Any]]):
    """The rows of a section; ``in_all``: how many there are, those that are not listed included."""

    def __init__(self, rows: Iterable[dict[str, Any]] = (), in_all: int | None = None) -> None:
        super().__init__(rows)
        self.in_all = len(self) if in_all is None else in_all

    @property
    def more(self) -> int:
        """How many rows are not listed."""
        return self.in_all - len(self)


@dataclass(frozen=True)
class ReportPage:
    """What one page says: the rows of every section, by name."""

    kind: Kind
    title: str
    includes_text: bool
    sections: Mapping[str, Rows]


@dataclass(frozen=True)
class Site:
    """What all pages share, read once.

    ``results``: of every model. ``controls`` are the models that were trained here: each has its own page and a row in
    the instrument check, and no answer among those of audited models.
    """

    results: Results
    controls: frozenset[str] = frozenset()
    findings: int = 0
    gaps: int = 0


def count_left_out_rows(sections: Mapping[str, Rows]) -> dict[str, int]:
    """How many rows of each section are not listed."""
    return {name: rows.more for name, rows in sections.items()}


def query_rows(connection: Connection, sql: str) -> list[dict[str, Any]]:
    """The rows of a query; a number that is not finite is None, because JSON has no other word for it."""
    # Not connection.sql, which plans every query twice.
    result = connection.execute(sql)
    columns = [name for name, *_ in result.description]
    return [_replace_non_finite(dict(zip(columns, row, strict=True))) for row in result.fetchall()]


def prepare_connection(connection: Connection) -> None:
    """Make the macros of the queries, and the tables of what was found (answers.sql, site.sql)."""
    connection.execute(_read_sql("macros"))
    for macro in _PLACES:
        connection.execute(f"CREATE TEMP MACRO {macro}")
    connection.execute(f"CREATE TEMP TABLE options AS {_read_sql('options')}")
    connection.execute(_read_sql("answers"))


def read_site(connection: Connection) -> Site:
    """What all pages share, of a connection that is prepared."""
    connection.execute(_read_sql("site"))
    checks = query_rows(connection, "SELECT * EXCLUDE (place) FROM instrument_checks ORDER BY place")
    return Site(
        results=_read_results(connection, checks),
        controls=frozenset(row["model"] for row in query_rows(connection, "FROM control_models")),
        findings=query_rows(connection, "SELECT count(*) AS n FROM leaderboard")[0]["n"],
        gaps=query_rows(connection, "SELECT count(*) AS n FROM gaps")[0]["n"],
    )


def _read_results(connection: Connection, checks: Sequence[dict[str, Any]] = ()) -> Results:
    queries = ("FROM answers", "FROM tests ORDER BY place", "FROM extraction_counts", "FROM chat_counts")
    answers, tests, searches, chats = (query_rows(connection, query) for query in queries)
    return describe_results(answers, tests, searches, chats, checks)


def iterate_model_pages(connection: Connection, site: Site, *, include_text: bool) -> Iterator[tuple[str, ReportPage]]:
    """Every model's page, in order."""
    most = display_priority.max_sections_per_model(len(site.results.models))
    for model in site.results.models:
        own = site.results.select(lambda name, model=model: name == model)  # type: ignore[misc]
        yield model, _read_page(connection, own, model=model, sections_shown=most, include_text=include_text)


def read_page_across_models(connection: Connection, site: Site, *, include_text: bool) -> ReportPage:
    """The page across models: every answer, and the evidence for all of them."""
    audited = site.results.select(lambda name: name not in site.controls)
    return _read_page(connection, audited, model=None, sections_shown=0, include_text=include_text)


def _read_page(
    connection: Connection, results: Results, *, model: str | None, sections_shown: int, include_text: bool
) -> ReportPage:
    """The page of a ``model``, or across models (None), with the rows of every section."""
    results = replace(results, answers=display_priority.sort_by_importance(results.answers))
    create_page_tables(
        connection, results.answers, model=model, sections_shown=sections_shown, include_text=include_text
    )
    rows = {section.name: _query_section_rows(connection, section, results) for section in list_sections()}
    return ReportPage("across" if model is None else "model", rows["first_screen"][0]["heading"], include_text, rows)


def create_page_tables(
    connection: Connection, answers: Sequence[Row], *, model: str | None, sections_shown: int, include_text: bool
) -> None:
    """Make the tables that the queries of a page read; ``model`` None: across models."""
    parameters = {
        "kind": "across" if model is None else "model",
        "model": model,
        "includes_text": include_text,
        "sections": sections_shown,
    }
    connection.execute(_PAGE, parameters)
    for name, pairs in (("asked_pairs", answers), ("shown_pairs", answers[: display_priority.MAX_ANSWERS])):
        columns = ("model", "benchmark", "detector", "parameters")
        given = {f"{column.removesuffix('s')}s": [pair[column] for pair in pairs] for column in columns}
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {_PAIRS}", given)
    connection.execute(_read_sql("page"))


class Conclusions(NamedTuple):
    """What the report's first screen says of a model, as JSON has it: ``answers`` and ``word_for_word``, what it gives
    of documents, and ``in_answers``, what it said of them when asked in words, by benchmark; ``tests`` of whole sets.
    """

    answers: Mapping[str, Row]
    tests: Sequence[Row]
    word_for_word: Mapping[str, Row]
    in_answers: Mapping[str, Row]


_SEARCH_WORDS = (
    *("outcome", "sign", "question", "headline", "explanation", "how_sure", "what_would_change", "claim"),
    *("claim_in_words", "calibration_in_words", "brief"),
)


def read_conclusions(warehouse: Path, model: str) -> Conclusions:
    """What is concluded of a model; raises DataError where there is no warehouse that can be read."""
    with open_read_only(warehouse) as connection:
        prepare_connection(connection)
        results = _read_results(connection).select(lambda name: name == model)

    def take(row: Row, *more: str) -> dict[str, Any]:
        return to_json_row({name: row[name] for name in (*_SEARCH_WORDS, *more)})

    return Conclusions(
        answers={row["benchmark"]: to_json_row(row) for row in results.answers},
        tests=[
            to_json_row({name: row[name] for name in row if name not in ("run_id", "place")}) for row in results.tests
        ],
        word_for_word={
            row["benchmark"]: take(row, "set_apart_in_words", "tried", "planned") for row in results.searches
        },
        in_answers={row["benchmark"]: take(row, "unanswered_in_words") for row in results.chats},
    )


def to_json_row(row: Row) -> dict[str, Any]:
    """A row as JSON has it, without the columns that are for Python alone."""
    shown = {name: value for name, value in row.items() if not name.startswith("_")}
    known: dict[str, Any] = json.loads(json.dumps(shown, default=_encode_date))
    return known


def read_named_detector(connection: Connection, model: str, benchmark: str) -> str | None:
    """The detector that was named to answer when a user's own scores were evaluated; None where none was."""
    options = query_rows(connection, _read_sql("options"))
    mine = [row["settings"] for row in options if (row["model"], row["benchmark"]) == (model, benchmark)]
    named: str | None = json.loads(mine[0]).get("headline") if mine else None
    return named


def _query_section_rows(connection: Connection, section: SectionFiles, results: Results) -> Rows:
    found = _complete_rows(query_rows(connection, section.sql), section.name, results)
    for part in section.parts if found else ():
        of_pairs: dict[Pair, list[dict[str, Any]]] = {}
        for row in _complete_rows(query_rows(connection, part.sql), part.name, results):
            of_pairs.setdefault((row.pop("model"), row.pop("benchmark")), []).append(row)
        for row in found:
            row[part.name] = _build_rows(of_pairs.get((row["model"], row["benchmark"]), []))
    if section.parts:
        for row in found:
            row["left_out"] = count_left_out_rows({part.name: row[part.name] for part in section.parts})
    return _build_rows(found)


def _complete_rows(rows: list[dict[str, Any]], section: str, results: Results) -> list[dict[str, Any]]:
    """The rows with what Python makes of them, without the columns that are for that alone."""
    if rows and section in SECTION_FUNCTIONS:
        SECTION_FUNCTIONS[section](rows, results)
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def _build_rows(rows: list[dict[str, Any]]) -> Rows:
    counts = [row.pop("in_all", None) for row in rows]
    return Rows(rows, counts[0] if counts else 0)


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_non_finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _encode_date(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"a report holds no {type(value).__name__}: {value!r}")


def _read_sql(name: str) -> str:
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
