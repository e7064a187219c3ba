"""Report pages as data: the rows of every section, for one model or across models.

A section is a query (sections/NN_name.sql) and a template (sections/NN_name.html.j2). NN orders the sections of a page.
If the query is not enough, a function of section_data.py completes its rows. A folder with the section's name contains
the parts of its rows. A part is a query and a template, too. Its rows join the section's rows by model and benchmark. A
column ``in_all`` contains the number of rows without the query's limit. It is removed from the rows.

Planning a query takes longer than reading its rows. So tables that all pages share are created once (sql/site.sql). The
parts of evidence and extraction are read once for a group of models (sql/details.sql).

html.py renders the templates, and files.py writes the pages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import duckdb

from audit_pipeline.report import pair_results, section_data
from audit_pipeline.report.pair_answer import build_rule_place_sql
from audit_pipeline.report.pair_results import Results
from audit_pipeline.report.sentences import list_limits
from audit_pipeline.store.stage_plugins import load_stage_plugins
from audit_pipeline.tables import PAIR_STATES, UNLEARNING_METRICS
from audit_pipeline.warehouse.query import open_read_only

SECTIONS = resources.files(__package__) / "sections"

_NAMED = re.compile(r"(\d+)_(\w+)\.sql")
_READ_PER_GROUP = ("20_evidence/", "25_extraction/")


@dataclass(frozen=True)
class SectionFiles:
    """A section of the report.

    Attributes:
        name: Name without the number.
        sql: Query of its rows.
        template: Path of its template below sections/.
        parts: Sections inside each of its rows.
    """

    name: str
    sql: str
    template: str
    parts: tuple[SectionFiles, ...]

    @property
    def is_read_per_group(self) -> bool:
        """Return True if the query of a part reads the pairs of a group of pages (sql/details.sql) at once."""
        return self.template.startswith(_READ_PER_GROUP)


@cache
def list_sections() -> tuple[SectionFiles, ...]:
    """Return all sections in the order of the page."""
    sections: list[SectionFiles] = []
    for folder in (SECTIONS, *list_plugin_section_folders()):
        sections += _read_sections(folder, "")
    return tuple(sorted(sections, key=lambda section: section.template))


def list_plugin_section_folders() -> list[Traversable]:
    """Return the section folders of the stages of installed packages."""
    folders = []
    for _, stage in load_stage_plugins():
        folder = getattr(stage, "section", None)
        if folder is not None:
            folders.append(folder)
    return folders


def _read_sections(folder: Traversable, prefix: str) -> tuple[SectionFiles, ...]:
    files = {file.name: file for file in folder.iterdir()}
    sections = []
    for name in sorted(filter(_NAMED.fullmatch, files)):
        stem = name.removesuffix(".sql")
        parts: tuple[SectionFiles, ...] = ()
        if stem in files:
            parts = _read_sections(files[stem], f"{prefix}{stem}/")
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

_GROUP_PAIRS = """
CREATE OR REPLACE TEMP TABLE group_pairs AS SELECT unnest($numbers::BIGINT[]) AS number,
    unnest($models::VARCHAR[]) AS model, unnest($benchmarks::VARCHAR[]) AS benchmark
"""

_GROUP_MODELS = "CREATE OR REPLACE TEMP TABLE group_models AS SELECT unnest($models::VARCHAR[]) AS model"

_PLACES = (
    # The worst state has the first place.
    f"status_place(status) AS list_position({[*PAIR_STATES]}, status)",
    f"metric_place(metric) AS list_position({[*UNLEARNING_METRICS]}, metric)",
    f"rule_place(rule, alpha) AS {build_rule_place_sql()}",
)
"""SQL macros that order rows by lists that Python declares."""


class Rows(list[dict[str, Any]]):
    """The rows of a section.

    Attributes:
        in_all: Number of rows without the query's limit.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), in_all: int | None = None) -> None:
        super().__init__(rows)
        self.in_all = in_all if in_all is not None else len(self)

    @property
    def more(self) -> int:
        """Return the number of rows that are not listed."""
        return self.in_all - len(self)


@dataclass(frozen=True)
class ReportPage:
    """One page of the report: the rows of every section by name."""

    kind: Kind
    title: str
    includes_text: bool
    sections: Mapping[str, Rows]


@dataclass(frozen=True)
class Site:
    """Data that all pages share, read once.

    Attributes:
        results: Results of every model.
        controls: Models that were trained here. Each has a page and a row in the instrument check. They are not
            listed among the audited models.
        findings: Number of rows of the view ``leaderboard``.
        gaps: Number of rows of the view ``gaps``.
    """

    results: Results
    controls: frozenset[str] = frozenset()
    findings: int = 0
    gaps: int = 0


def count_left_out_rows(sections: Mapping[str, Rows]) -> dict[str, int]:
    """Return the number of rows per section that are not listed."""
    return {name: rows.more for name, rows in sections.items()}


def query_rows(connection: Connection, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query. Numbers that are not finite become None, because JSON cannot represent them."""
    # connection.sql would plan every query twice.
    result = connection.execute(sql)
    columns = [name for name, *_ in result.description]
    return [_replace_non_finite(dict(zip(columns, row, strict=True))) for row in result.fetchall()]


def prepare_connection(connection: Connection) -> None:
    """Create the macros of the queries and the tables of results (sql/macros.sql, options.sql, answers.sql)."""
    connection.execute(_read_sql("macros"))
    for macro in _PLACES:
        connection.execute(f"CREATE TEMP MACRO {macro}")
    connection.execute(f"CREATE TEMP TABLE options AS {_read_sql('options')}")
    connection.execute(_read_sql("answers"))


def read_site(connection: Connection) -> Site:
    """Read the data that all pages share. The connection must be prepared (:func:`prepare_connection`)."""
    connection.execute(_read_sql("site"))
    # The views of a page can only be created over tables that exist.
    connection.execute(_PAGE, {"kind": "across", "model": None, "includes_text": False, "sections": 0})
    _create_group_tables(connection, {}, max_sections=0)
    connection.execute(_read_sql("page_views"))
    checks = query_rows(connection, "SELECT * EXCLUDE (place) FROM instrument_checks ORDER BY place")
    controls = query_rows(connection, "FROM control_models")
    return Site(
        results=_read_results(connection, checks),
        controls=frozenset(map(itemgetter("model"), controls)),
        findings=query_rows(connection, "SELECT count(*) AS n FROM leaderboard")[0]["n"],
        gaps=query_rows(connection, "SELECT count(*) AS n FROM gaps")[0]["n"],
    )


def _read_results(connection: Connection, checks: Sequence[dict[str, Any]] = ()) -> Results:
    return pair_results.describe_results(
        answers=query_rows(connection, "FROM answers"),
        tests=query_rows(connection, "FROM tests ORDER BY place"),
        searches=query_rows(connection, "FROM extraction_counts"),
        chats=query_rows(connection, "FROM chat_counts"),
        checks=checks,
    )


def iterate_model_pages(connection: Connection, site: Site, *, include_text: bool) -> Iterator[tuple[str, ReportPage]]:
    """Yield the page of each model, ordered by the models' names.

    The details of pairs are read for a group of models at once. The groups bound the memory.
    """
    models = site.results.models
    max_sections = pair_results.max_sections_per_model(len(models))
    group_size = max(1, pair_results.MAX_PICTURED // max_sections)
    for begin in range(0, len(models), group_size):
        group = models[begin : begin + group_size]
        results_by_model = {model: _select_results(site, {model}) for model in group}
        _create_group_tables(connection, results_by_model, max_sections)
        parts = _GroupParts(connection)
        for model, results in results_by_model.items():
            page = _read_page(
                connection, results, parts, model=model, sections_shown=max_sections, include_text=include_text
            )
            yield model, page


def read_page_across_models(connection: Connection, site: Site, *, include_text: bool) -> ReportPage:
    """Read the page across models: all answers and their evidence."""
    audited = _select_results(site, set(site.results.models) - site.controls)
    parts = _GroupParts(connection)
    return _read_page(connection, audited, parts, model=None, sections_shown=0, include_text=include_text)


def _select_results(site: Site, models: Collection[str]) -> Results:
    """Return the results of these models, with the answers sorted by importance."""
    results = site.results.select(models.__contains__)
    return replace(results, answers=pair_results.sort_by_importance(results.answers))


class _GroupParts:
    """The rows of parts for all pages of a group of models. Each query runs when the first page needs its rows."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows_by_template: dict[str, Mapping[Pair, Sequence[dict[str, Any]]]] = {}

    def read(self, part: SectionFiles) -> Mapping[Pair, Sequence[dict[str, Any]]]:
        """Return the rows of a part by model and benchmark."""
        if not part.is_read_per_group:
            return _query_rows_by_pair(self._connection, part.sql)
        if part.template not in self._rows_by_template:
            self._rows_by_template[part.template] = _query_rows_by_pair(self._connection, part.sql)
        return self._rows_by_template[part.template]


def _query_rows_by_pair(connection: Connection, sql: str) -> Mapping[Pair, Sequence[dict[str, Any]]]:
    rows_by_pair: dict[Pair, list[dict[str, Any]]] = {}
    for row in query_rows(connection, sql):
        pair = (row.pop("model"), row.pop("benchmark"))
        rows_by_pair.setdefault(pair, []).append(row)
    return rows_by_pair


def _read_page(
    connection: Connection,
    results: Results,
    parts: _GroupParts,
    *,
    model: str | None,
    sections_shown: int,
    include_text: bool,
) -> ReportPage:
    """Read the page of a model, or the page across models if ``model`` is None."""
    create_page_tables(
        connection, results.answers, model=model, sections_shown=sections_shown, include_text=include_text
    )
    rows: dict[str, Rows] = {}
    for section in list_sections():
        rows[section.name] = _query_section_rows(connection, section, results, parts)
    return ReportPage("across" if model is None else "model", rows["first_screen"][0]["heading"], include_text, rows)


def create_page_tables(
    connection: Connection, answers: Sequence[Row], *, model: str | None, sections_shown: int, include_text: bool
) -> None:
    """Create the tables that the queries of a page read. ``model`` is None for the page across models."""
    parameters = {
        "kind": "across" if model is None else "model",
        "model": model,
        "includes_text": include_text,
        "sections": sections_shown,
    }
    connection.execute(_PAGE, parameters)
    for name, pairs in (("asked_pairs", answers), ("shown_pairs", answers[: pair_results.MAX_ANSWERS])):
        pair_columns: dict[str, list[Any]] = {"models": [], "benchmarks": [], "detectors": [], "parameters": []}
        for pair in pairs:
            pair_columns["models"].append(pair["model"])
            pair_columns["benchmarks"].append(pair["benchmark"])
            pair_columns["detectors"].append(pair["detector"])
            pair_columns["parameters"].append(pair["parameters"])
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {_PAIRS}", pair_columns)
    connection.execute(_read_sql("page"))


def _create_group_tables(connection: Connection, results_by_model: Mapping[str, Results], max_sections: int) -> None:
    """Create the tables of the pairs whose details the pages of a group of models show (sql/details.sql)."""
    pair_columns: dict[str, list[Any]] = {"numbers": [], "models": [], "benchmarks": []}
    for results in results_by_model.values():
        for number, answer in enumerate(results.answers[:max_sections], start=1):
            pair_columns["numbers"].append(number)
            pair_columns["models"].append(answer["model"])
            pair_columns["benchmarks"].append(answer["benchmark"])
    connection.execute(_GROUP_PAIRS, pair_columns)
    connection.execute(_GROUP_MODELS, {"models": list(results_by_model)})
    connection.execute("SET VARIABLE max_sections = $max_sections", {"max_sections": max_sections})
    connection.execute(_read_sql("details"))


class Conclusions(NamedTuple):
    """The conclusions on the first screen of a model's page, as JSON rows.

    Attributes:
        answers: Answers from scores, by benchmark.
        tests: Tests of whole sets.
        word_for_word: Searches for passages that the model continues word for word, by benchmark.
        in_answers: Questions to a model that answers in words, by benchmark.
    """

    answers: Mapping[str, Row]
    tests: Sequence[Row]
    word_for_word: Mapping[str, Row]
    in_answers: Mapping[str, Row]


_SEARCH_COLUMNS = (*section_data.ANSWER_COLUMNS, "claim_in_words", "calibration_in_words")


def read_conclusions(warehouse: Path, model: str) -> Conclusions:
    """Read the conclusions about a model.

    Raises:
        DataError: If the warehouse is missing or unreadable.
    """
    with open_read_only(warehouse) as connection:
        prepare_connection(connection)
        results = _read_results(connection).select(lambda name: name == model)

    def select(row: Row, *more_columns: str) -> dict[str, Any]:
        return to_json_row(section_data.select_columns(row, (*_SEARCH_COLUMNS, *more_columns)))

    answers = {}
    for row in results.answers:
        answers[row["benchmark"]] = to_json_row(row)
    word_for_word = {}
    for row in results.searches:
        word_for_word[row["benchmark"]] = select(row, "set_apart_in_words", "tried", "planned")
    in_answers = {}
    for row in results.chats:
        in_answers[row["benchmark"]] = select(row, "unanswered_in_words")
    tests = []
    for test in results.tests:
        tests.append(to_json_row(section_data.select_test_columns(test)))
    return Conclusions(
        answers=answers,
        tests=tests,
        word_for_word=word_for_word,
        in_answers=in_answers,
    )


def to_json_row(row: Row) -> dict[str, Any]:
    """Convert a row to JSON values. Columns named ``raw_…`` are dropped: only a section's function reads them."""
    json_row: dict[str, Any] = json.loads(json.dumps(_drop_raw_columns(row), default=_encode_date))
    return json_row


def read_named_detector(connection: Connection, model: str, benchmark: str) -> str | None:
    """Return the detector that the user named for an evaluation of external scores, or None."""
    for row in query_rows(connection, _read_sql("options")):
        if (row["model"], row["benchmark"]) == (model, benchmark):
            headline: str | None = json.loads(row["settings"]).get("headline")
            return headline
    return None


def _query_section_rows(connection: Connection, section: SectionFiles, results: Results, parts: _GroupParts) -> Rows:
    rows = _complete_rows(query_rows(connection, section.sql), section.name, results)
    if not rows:
        return Rows()
    for part in section.parts:
        rows_by_pair = parts.read(part)
        for row in rows:
            part_rows = rows_by_pair.get((row["model"], row["benchmark"]), ())
            row[part.name] = _build_rows(_complete_rows(part_rows, part.name, results))
    if section.parts:
        for row in rows:
            row["left_out"] = count_left_out_rows({part.name: row[part.name] for part in section.parts})
    return _build_rows(rows)


def _complete_rows(rows: Sequence[dict[str, Any]], section: str, results: Results) -> list[dict[str, Any]]:
    """Apply the section's function, if it has one, and drop the columns that only the function reads."""
    if section == "limits":
        return list_limits()
    complete = section_data.ROW_FUNCTIONS.get(section)
    if complete is not None:
        rows = [complete(row, results) for row in rows]
    return list(map(_drop_raw_columns, rows))


def _drop_raw_columns(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith(section_data.RAW_PREFIX)}


def _build_rows(rows: list[dict[str, Any]]) -> Rows:
    counts = [row.pop("in_all", None) for row in rows]
    if not counts:
        return Rows()
    return Rows(rows, counts[0])


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replace_non_finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_replace_non_finite, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _encode_date(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    raise TypeError(f"cannot write {value!r} to the report, because its type is {type(value).__name__}")


def _read_sql(name: str) -> str:
    return (resources.files(__package__) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
