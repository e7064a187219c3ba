"""What the warehouse holds: the SQL files that define its tables, views and macros, in the order they are made.

What belongs here: names, their order, reading the files under sql/, and how a table's columns are computed from its
Parquet files where they are not simply read. What does not: running any of it (define.py, build.py), and the columns of
the Parquet files (catalogue/contracts.py), which sql/tables/ repeats and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from audit_pipeline.catalogue.contracts import EXCERPT_CHARACTERS, EXCERPT_WORDS, RUN_TABLES

BLIND_CONTROL = "blind_control"
"""The detector that never sees the model; sql/views/leaderboard_history.sql sets it apart by this name."""

BLANKS = r"\s\x0B\x1C-\x1F\x{85}\p{Z}"
"""Regex class (RE2) of what ``str.split`` treats as whitespace."""

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Regex class of scripts written without blanks: each character counts as a word of an excerpt."""

PARQUET_TABLES = (
    "documents",
    "examples",
    "split_quality",
    "token_statistics",
    *RUN_TABLES,
    "lineage",
    "outcomes",
    "control_studies",
)

GIVEN_TABLES = ("models", "benchmarks", "configured_models", "configured_benchmarks")
"""Filled row by row from JSON files and the configuration."""

DERIVED_TABLES = ("scored_settings", "runs", "lineage_edges", "files_gone", "group_scores")
"""Filled from other tables by sql/fills/, in this order, so that views need not read every score."""

PLANNED_TABLES = ("coverage",)
"""Filled with what the planner says of the tables before."""

KEYS = "keys"

_KEY = re.compile(r"^-- Key, checked by every build \(table keys\): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Table:
    """One table of the warehouse. ``sql`` makes it, with its comments.

    ``key``: the columns that no two rows have in common, as SQL, where the build counts them; None where DuckDB
    enforces a primary key. ``expressions``: SQL over the columns of the Parquet file, for columns that are not simply
    the file's column of that name.
    """

    name: str
    sql: str
    key: str | None
    expressions: Mapping[str, str]


@dataclass(frozen=True)
class View:
    """One view. ``sql`` makes it; a column that it does not comment on means what it means in ``columns_of``.

    ``columns_of``: tables and earlier views, of which the first that has such a column counts.
    """

    name: str
    sql: str
    columns_of: tuple[str, ...]


@dataclass(frozen=True)
class Macro:
    """One macro: a view with an argument."""

    name: str
    sql: str


def quoted(name: str) -> str:
    """``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def tables(*, include_text: bool) -> tuple[Table, ...]:
    """Every table of the warehouse, in the order they are made; without text, what would quote the audited texts is
    empty."""
    names = (*PARQUET_TABLES, *GIVEN_TABLES, *DERIVED_TABLES, *PLANNED_TABLES, KEYS)
    return tuple(_table(name, _expressions(include_text=include_text).get(name, {})) for name in names)


def fill_of(table: str) -> str:
    """The SQL that fills a derived table."""
    return _read("fills", table)


def _table(name: str, expressions: Mapping[str, str]) -> Table:
    sql = _read("tables", name)
    key = _KEY.search(sql)
    return Table(name, sql, key.group(1) if key else None, expressions)


def _read(kind: str, name: str) -> str:
    return files("audit_pipeline.warehouse").joinpath("sql", kind, f"{name}.sql").read_text(encoding="utf-8")


def _view(name: str, *columns_of: str) -> View:
    return View(name, _read("views", name), columns_of)


def _macro(name: str) -> Macro:
    return Macro(name, _read("macros", name))


_WORDS_OF_TEXT = f"len(regexp_extract_all(text, '[^{BLANKS}]+'))"

_FLAT = f"trim(regexp_replace(left(text, {4 * EXCERPT_CHARACTERS}), '[{BLANKS}]+', ' ', 'g'))"
_CUT = (
    f"left(regexp_extract({_FLAT}, '^(?:(?:[{UNSPACED}]|[^{BLANKS}{UNSPACED}]+) ?){{0,{EXCERPT_WORDS}}}'),"
    f" {EXCERPT_CHARACTERS})"
)

EXCERPT = (
    f"CASE WHEN length({_CUT}) < length({_FLAT}) OR length(text) > {4 * EXCERPT_CHARACTERS}"
    f" THEN rtrim({_CUT}) || '…' ELSE {_CUT} END"
)
"""SQL: the first words of a column ``text``."""


def _expressions(*, include_text: bool) -> Mapping[str, Mapping[str, str]]:
    return {
        "documents": {"words": _WORDS_OF_TEXT},
        "examples": {
            "excerpt": EXCERPT if include_text else "NULL",
            "text_sha256": "sha256(coalesce(context, '') || text)",
            "has_context": "context IS NOT NULL",
        },
        "token_statistics": {
            "model_fingerprint": "regexp_extract(filename, '[/\\\\]model=([^/\\\\]*)[/\\\\]', 1)",
            "tokens": "len(logprob)",
            "mean_logprob": "list_avg(logprob::DOUBLE[])",
        },
        "highlights": {} if include_text else {"pieces": "[]::VARCHAR[]"},
        # "at" is a word of DuckDB's grammar: a column of that name would have to be quoted in every query.
        "outcomes": {"recorded_at": quoted("at")},
    }


DEFINED: tuple[View | Macro, ...] = (
    _view("current_runs", "runs"),
    *(_view(f"current_{name}", name) for name in RUN_TABLES),
    _view("split_summary", "split_quality", "lineage"),
    _view("leaderboard_history", "evaluations", "lineage"),
    _view("leaderboard", "leaderboard_history"),
    _view("scores_with_examples", "scores", "examples"),
    _view("findings", "evaluations", "lineage"),
    _view("instrument_check", "evaluations"),
    _view("lineage_gaps", "runs"),
    _view("lineage_of_finding", "evaluations", "lineage"),
    _view("not_audited", "coverage"),
    _view("model_releases", "configured_models"),
    _view("model_timeline", "leaderboard_history", "configured_models"),
    _view("older_model_control", "leaderboard_history"),
    _view("detector_comparison", "comparisons"),
    _view("book_contamination", "contamination_rates", "group_tests"),
    _view("multiplicity_ledger", "evaluations"),
    _view("cost", "evaluations", "lineage"),
    _macro("end_of_run"),
    _macro("runs_as_of"),
    *(_macro(f"{name}_as_of") for name in ("scores", "evaluations", "group_tests", "contamination_rates")),
    _macro("leaderboard_as_of"),
    _macro("evaluations_of_run"),
    _macro("leaderboard_of_run"),
    _macro("changes_since"),
    _view("changes_since_last_audit", "leaderboard_history"),
)
"""Views and macros in the order they are made: each after those that it reads."""

VIEWS = tuple(one for one in DEFINED if isinstance(one, View))
MACROS = tuple(one for one in DEFINED if isinstance(one, Macro))
