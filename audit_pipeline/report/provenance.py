"""Where the texts, labels and scores of a pair come from, and what is typed to have its numbers again.

What belongs here: tables of scores that were handed over, the options they were evaluated with, counts of texts,
commands. What does not: lineage entries (report_background.py), what is said of them (report_words.py).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import duckdb

from audit_pipeline.evidence.options import command_of
from audit_pipeline.report.document import Answer, Counted
from audit_pipeline.report.rows import rows

Connection = duckdb.DuckDBPyConnection
Pair = tuple[str, str]
Settings = Mapping[str, Any]

MAX_COMMANDS = 40
GIVEN = "given"
"""The builder in the manifest of a table of scores that was handed over."""

_GIVEN = f"SELECT benchmark FROM benchmarks WHERE (manifest ->> '$.spec.builder') = '{GIVEN}'"  # noqa: S608 - a name of this module

# Of the scores that count now: every pair has the options of its own scores.
_SETTINGS = """
SELECT current.model, current.benchmark, lineage.settings FROM current_runs AS current
JOIN lineage ON lineage."table" = current."table" AND lineage.run_id = current.run_id
    AND lineage."partition" = current.benchmark || '|' || current.model
WHERE current."table" = 'scores' AND lineage.settings IS NOT NULL
ORDER BY lineage.finished_at
"""

# With a score by the detector that answers; by any where none does.
_COUNTED = """
WITH answering AS (
    SELECT unnest($models) AS model, unnest($benchmarks) AS benchmark, unnest($detectors) AS detector,
        unnest($parameters) AS parameters
), scored AS (
    SELECT DISTINCT scores.model, scores.benchmark, scores.example_id FROM current_scores AS scores
    JOIN answering ON scores.model = answering.model AND scores.benchmark = answering.benchmark
        AND scores.detector = coalesce(answering.detector, scores.detector)
        AND scores.parameters = coalesce(answering.parameters, scores.parameters)
    WHERE scores.status = 'ok'
)
SELECT model, benchmark, split, count(*) AS texts, count(DISTINCT "group") AS groups,
    count(*) FILTER (label = 1) AS members, count(*) FILTER (label = 0) AS nonmembers,
    count(*) FILTER (label IS NULL) AS unknown
FROM scored JOIN examples USING (benchmark, example_id) GROUP BY ALL ORDER BY model, benchmark, split DESC
"""


def read_given(connection: Connection) -> frozenset[str]:
    """The benchmarks that are tables of scores handed over."""
    return frozenset(row["benchmark"] for row in rows(connection, _GIVEN))


def read_settings(connection: Connection) -> dict[Pair, Settings]:
    """By model and benchmark, the options that the scores were evaluated with, where they were kept."""
    return {(row["model"], row["benchmark"]): json.loads(row["settings"]) for row in rows(connection, _SETTINGS)}


def read_counted(connection: Connection, answers: Collection[Answer]) -> dict[Pair, list[Counted]]:
    """By model and benchmark, the texts of its splits that the detector that answers has scored, or any where none
    answers."""
    asked = {
        "models": [one.model for one in answers],
        "benchmarks": [one.benchmark for one in answers],
        "detectors": [one.detector for one in answers],
        "parameters": [one.parameters for one in answers],
    }
    counted: dict[Pair, list[Counted]] = {}
    for row in rows(connection, _COUNTED, **asked) if answers else []:
        known = {name: row[name] for name in Counted.model_fields}
        counted.setdefault((row["model"], row["benchmark"]), []).append(Counted(**known))
    return counted


def commands(
    answers: Sequence[Answer], given: Collection[str], settings: Mapping[Pair, Settings]
) -> tuple[list[str], int]:
    """What runs the same audits and evaluations again, and how many are not listed.

    ``given`` and ``settings``: as of :func:`read_given` and :func:`read_settings`.
    """
    ordered = sorted(answers, key=lambda answer: (answer.model, answer.benchmark))
    each = [_command(answer, settings.get((answer.model, answer.benchmark)), given) for answer in ordered]
    # An evaluation writes its report itself.
    ends = ["corpus-audit report"] if any(answer.benchmark not in given for answer in answers) else []
    return [*each[:MAX_COMMANDS], *ends], max(0, len(each) - MAX_COMMANDS)


def _command(answer: Answer, settings: Settings | None, given: Collection[str]) -> str:
    if settings is not None:
        return shlex.join(command_of(settings))
    if answer.benchmark in given:
        name = " ".join(f"{answer.model} on {answer.benchmark}".split())
        return f"# {name}: evaluated by an earlier version, which did not keep how"
    return shlex.join(["corpus-audit", "audit", "--model", answer.model, "--benchmark", answer.benchmark])
