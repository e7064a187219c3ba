"""What the HTML report shows, read from the warehouse.

What belongs here: queries on the views, and their rows put in the order of the report. What does not: pictures
(plots.py), HTML and words (report.py and its template), views that an analyst needs as well (schema.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit_pipeline.contracts import MEMBER, NON_MEMBER
from audit_pipeline.warehouse.build import LineageGap, lineage_gaps
from audit_pipeline.warehouse.report_choice import ListedPair, choose
from audit_pipeline.warehouse.report_coverage import CoverageData, coverage_data
from audit_pipeline.warehouse.schema import BLIND_CONTROL

Row = Mapping[str, Any]
Floats = npt.NDArray[np.float64]

TOP_EXAMPLES = 5
TOP_GROUPS = 25
MAX_GAPS = 50


@dataclass(frozen=True)
class LabelledScores:
    """Scores of one detector setting on the labelled evaluation texts; ``labels`` holds 1 and 0."""

    scores: Floats
    labels: npt.NDArray[np.int8]

    @property
    def members(self) -> Floats:
        return np.asarray(self.scores[self.labels == MEMBER])

    @property
    def nonmembers(self) -> Floats:
        return np.asarray(self.scores[self.labels == NON_MEMBER])


@dataclass(frozen=True)
class PairData:
    """The section of one model on one benchmark. ``headline``: rows of the leaderboard; ``scores``: an entry each.

    ``groups``, by their mean score, are given where no text is labelled: what there is to say of a shelf.
    """

    number: int
    model: str
    benchmark: str
    headline: Sequence[Row]
    blind: Row | None
    grid: Sequence[Row]
    scores: Sequence[LabelledScores]
    not_scored: Sequence[Row]
    top_detector: Row | None
    top: Sequence[Row]
    groups: Sequence[Row]
    methods: Sequence[str]


@dataclass(frozen=True)
class Totals:
    """How much there is, shown or not."""

    pairs: int
    models: int
    benchmarks: int
    findings: int
    lineage: int
    gaps: int


@dataclass(frozen=True)
class CheckLine:
    """One check of a benchmark, as its manifest tells it."""

    name: str
    passed: bool
    what: str
    counts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class BenchmarkData:
    """One benchmark: its checks, the rest of its manifest flattened to (key, value) lines, and what its tables hold."""

    name: str
    digest: str | None
    design: str | None
    description: str | None
    checks: Sequence[CheckLine]
    manifest: Sequence[tuple[str, str]]
    sides: Sequence[Row]
    sources: Sequence[Row]


@dataclass(frozen=True)
class SplitData:
    """What tells a benchmark's two sides apart without a model: its ``row`` of split_summary, its blind controls.

    ``matched``: what matching the sides achieved, a row a figure; none where they were not matched.
    """

    row: Row
    controls: Sequence[Row]
    matched: Sequence[Row]
    lineage_number: int | None

    @property
    def name(self) -> str:
        """The benchmark's."""
        return str(self.row["benchmark"])


@dataclass(frozen=True)
class ReportData:
    """Everything that the report shows. ``lineage`` rows carry their number in the report as ``number``.

    ``checks`` are rows of the view instrument_check, ``studies`` the results of studies of controls by their names.
    ``table`` holds the pairs of the table of findings and ``pairs`` those with a section: the ones that matter most,
    where there are more. ``lineage`` explains what is shown.
    """

    models: Sequence[Row]
    checks: Sequence[Row]
    studies: Mapping[str, pa.Table]
    splits: Sequence[SplitData]
    benchmarks: Sequence[BenchmarkData]
    table: Sequence[ListedPair]
    pairs: Sequence[PairData]
    lineage: Sequence[Row]
    gaps: Sequence[LineageGap]
    coverage: CoverageData
    totals: Totals


def read_report_data(connection: duckdb.DuckDBPyConnection) -> ReportData:
    """Read everything that the report shows from an open warehouse; leaves temporary tables in the connection."""
    headlines: dict[tuple[str, str], list[Row]] = {}
    for row in _rows(connection, "FROM leaderboard"):
        headlines.setdefault((row["model"], row["benchmark"]), []).append(row)
    pairs = _rows(connection, "SELECT DISTINCT model, benchmark FROM current_runs ORDER BY model, benchmark")
    chosen = choose(pairs, headlines)
    _set_apart(connection, chosen)
    lineage = _lineage(connection)
    entries = {(row["table"], row["partition"], row["run_id"]): row["number"] for row in lineage}
    table = [
        _listed(row["model"], row["benchmark"], section, headlines.get((row["model"], row["benchmark"]), []), entries)
        for row, section in chosen
    ]
    gaps = lineage_gaps(connection)
    return ReportData(
        models=_rows(connection, _MODELS),
        splits=[_split(connection, row, entries) for row in _rows(connection, _SPLITS)],
        checks=_rows(connection, "FROM instrument_check"),
        studies=_studies(connection),
        benchmarks=[_benchmark(connection, row) for row in _rows(connection, _BENCHMARKS)],
        table=table,
        pairs=[_pair(connection, pair.section, pair) for pair in table if pair.section is not None],
        lineage=lineage,
        gaps=gaps[:MAX_GAPS],
        coverage=coverage_data(
            _rows(connection, "FROM coverage"),
            _rows(connection, "FROM not_audited"),
            config_is_known=bool(_rows(connection, _CONFIG_IS_KNOWN)),
        ),
        totals=Totals(
            pairs=len(pairs),
            models=len({row["model"] for row in pairs}),
            benchmarks=len({row["benchmark"] for row in pairs}),
            findings=sum(len(headline) for headline in headlines.values()),
            lineage=_rows(connection, _LINEAGE_COUNT)[0]["entries"],
            gaps=len(gaps),
        ),
    )


def _studies(connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    names = [row["study"] for row in _rows(connection, "SELECT DISTINCT study FROM control_studies ORDER BY study")]
    return {name: connection.sql(_STUDY, params={"study": name}).to_arrow_table() for name in names}


def flattened(value: object, *, key: str = "") -> list[tuple[str, str]]:
    """Nested JSON as lines of (key, value): keys joined with ›, plain lists on one line, empty values left out."""
    if isinstance(value, Mapping):
        lines = [flattened(item, key=f"{key} › {name}" if key else str(name)) for name, item in value.items()]
        return [line for group in lines for line in group]
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        lines = [flattened(item, key=f"{key} › {position}") for position, item in enumerate(value, start=1)]
        return [line for group in lines for line in group]
    if isinstance(value, list):
        value = ", ".join(_word(item) for item in value)
    return [] if value is None or value == "" else [(key, _word(value))]


_MODELS = """
SELECT models.*, count(DISTINCT findings.benchmark) AS benchmarks
FROM models LEFT JOIN findings ON findings.model_fingerprint = models.fingerprint
GROUP BY ALL ORDER BY models.name, models.fingerprint
"""

_STUDY = "SELECT * FROM control_studies WHERE study = $study"

_CONFIG_IS_KNOWN = "SELECT 1 WHERE EXISTS (FROM configured_models) AND EXISTS (FROM configured_benchmarks)"

_BENCHMARKS = """
SELECT coalesce(benchmarks.benchmark, built.benchmark) AS benchmark, digest, design, manifest
FROM benchmarks FULL JOIN (SELECT DISTINCT benchmark FROM examples) AS built
    ON built.benchmark = benchmarks.benchmark
ORDER BY 1
"""

_SPLITS = """
SELECT summary.*, benchmarks.manifest -> 'matched' -> 'achieved' AS achieved
FROM split_summary AS summary SEMI JOIN current_runs ON current_runs.benchmark = summary.benchmark
LEFT JOIN benchmarks ON benchmarks.benchmark = summary.benchmark ORDER BY summary.benchmark
"""

_CONTROLS = """
SELECT part AS name, "value" AS auroc, ci_low, ci_high, n, method, verdict FROM split_quality
WHERE benchmark = $benchmark AND measure = 'blind_auroc'
ORDER BY list_position(['words', 'characters', 'length', 'dates'], part)
"""

_SIDES = """
SELECT label, split, min(words) AS fewest, max(words) AS most, language, count(*) AS texts,
    count(DISTINCT "group") AS groups, min(published) AS earliest, max(published) AS latest
FROM examples WHERE benchmark = $benchmark GROUP BY ALL ORDER BY label DESC NULLS LAST, split, language
"""

_SOURCES = """
SELECT documents.source, documents.collection, documents.licence, count(DISTINCT documents.document_id) AS documents,
    min(documents.published) AS earliest, max(documents.published) AS latest, max(documents.retrieved_at) AS retrieved
FROM documents SEMI JOIN (SELECT document_id FROM examples WHERE benchmark = $benchmark) AS used
    ON used.document_id = documents.document_id
GROUP BY ALL ORDER BY ALL
"""

_BLIND = f"""
SELECT * FROM shown_evaluations
WHERE model = $model AND benchmark = $benchmark AND detector = '{BLIND_CONTROL}' AND metric = 'auroc' LIMIT 1
"""  # noqa: S608 - a name from schema.py

_GRID = f"""
SELECT detector, parameters, is_default, n_members, n_nonmembers,
    max(value) FILTER (metric = 'auroc') AS auroc,
    max(ci_low) FILTER (metric = 'auroc') AS auroc_low, max(ci_high) FILTER (metric = 'auroc') AS auroc_high,
    max(value) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr,
    max(value) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr
FROM shown_evaluations
WHERE model = $model AND benchmark = $benchmark AND detector <> '{BLIND_CONTROL}'
GROUP BY detector, parameters, is_default, n_members, n_nonmembers
QUALIFY count(*) OVER (PARTITION BY detector) > 1
ORDER BY detector, TRY_CAST(parameters ->> '$.k' AS DOUBLE), parameters
"""  # noqa: S608 - a name from schema.py

_SCORES = """
SELECT score, label FROM shown_scores
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
    AND status = 'ok' AND split = 'evaluation' AND label IN (0, 1) AND NOT isnan(score)
"""

_NOT_SCORED = """
SELECT detector, status, reason, count(DISTINCT example_id) AS texts, count(DISTINCT parameters) AS settings
FROM shown_scores WHERE model = $model AND benchmark = $benchmark AND status <> 'ok'
GROUP BY ALL ORDER BY detector, texts DESC, reason
"""

_PLAINEST = """
SELECT detector, parameters FROM shown_scores WHERE model = $model AND benchmark = $benchmark AND status = 'ok'
GROUP BY detector, parameters ORDER BY parameters = '{}' DESC, detector, parameters LIMIT 1
"""

_TOP = """
SELECT example_id, score, label, split, published, collection, "group", words, language, excerpt
FROM shown_scores
WHERE model = $model AND benchmark = $benchmark AND detector = $detector AND parameters = $parameters
    AND status = 'ok' AND split IS DISTINCT FROM 'calibration'
ORDER BY score DESC, example_id LIMIT $count
"""

_GROUPS = """
SELECT * FROM group_scores WHERE model = $model AND benchmark = $benchmark
    AND detector = $detector AND parameters = $parameters
ORDER BY mean_score DESC, "group" LIMIT $count
"""

_METHODS = """
SELECT DISTINCT metric, method FROM shown_evaluations
WHERE model = $model AND benchmark = $benchmark AND is_default ORDER BY ALL
"""

_USED = """
WITH used AS (
    SELECT "table", benchmark || '|' || model AS "partition", run_id FROM current_runs
    {those}
    UNION SELECT 'examples', benchmark, run_id FROM examples
    UNION SELECT 'split_quality', benchmark, run_id FROM split_quality
    UNION SELECT 'documents', source, run_id FROM documents
), explaining AS (
    FROM lineage SEMI JOIN used
        ON used."table" = lineage."table" AND used."partition" = lineage."partition" AND used.run_id = lineage.run_id
)
"""

_LINEAGE = f"""
{_USED.format(those="SEMI JOIN shown_pairs USING (model, benchmark)")}
SELECT row_number() OVER (ORDER BY "table", "partition", finished_at, run_id) AS number, * FROM explaining
ORDER BY number
"""  # noqa: S608 - from this module

_LINEAGE_COUNT = f"{_USED.format(those='')} SELECT count(*) AS entries FROM explaining"  # noqa: S608 - from this module

# What the sections ask for again and again, out of millions of rows: looked for once.
_SHOWN = """
CREATE TEMP TABLE shown_scores AS
    SELECT * FROM scores_with_examples SEMI JOIN (FROM shown_pairs WHERE section IS NOT NULL) USING (model, benchmark);
CREATE TEMP TABLE shown_evaluations AS
    SELECT * FROM current_evaluations SEMI JOIN (FROM shown_pairs WHERE section IS NOT NULL) USING (model, benchmark);
"""


def _set_apart(connection: duckdb.DuckDBPyConnection, chosen: Sequence[tuple[Row, int | None]]) -> None:
    connection.execute("CREATE TEMP TABLE shown_pairs (model VARCHAR, benchmark VARCHAR, section INTEGER)")
    rows = [(row["model"], row["benchmark"], section) for row, section in chosen]
    if rows:
        connection.executemany("INSERT INTO shown_pairs VALUES (?, ?, ?)", rows)
    connection.execute(_SHOWN)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, **parameters: object) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = connection.sql(sql, params=parameters or None).to_arrow_table().to_pylist()
    return rows


def _lineage(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "upstream": flattened(json.loads(row["upstream_data_versions"])),
            "packages": flattened(json.loads(row["package_versions"])),
        }
        for row in _rows(connection, _LINEAGE)
    ]


def _benchmark(connection: duckdb.DuckDBPyConnection, row: Row) -> BenchmarkData:
    name = row["benchmark"]
    manifest = json.loads(row["manifest"]) if row["manifest"] else {}
    shown_apart = ("benchmark", "digest", "design", "description", "checks", "matched")
    return BenchmarkData(
        name=name,
        digest=row["digest"],
        design=row["design"],
        description=manifest.get("description"),
        checks=_checks(manifest.get("checks")),
        manifest=flattened({key: value for key, value in manifest.items() if key not in shown_apart}),
        sides=_rows(connection, _SIDES, benchmark=name),
        sources=_rows(connection, _SOURCES, benchmark=name),
    )


def _split(connection: duckdb.DuckDBPyConnection, row: Row, entries: Mapping[tuple[str, str, str], int]) -> SplitData:
    achieved = json.loads(row["achieved"]) if row["achieved"] else {}
    return SplitData(
        row=row,
        controls=_rows(connection, _CONTROLS, benchmark=row["benchmark"]),
        matched=[{"name": name, **one} for name, one in achieved.items()],
        lineage_number=entries.get(("split_quality", row["benchmark"], row["run_id"])),
    )


def _checks(value: object) -> list[CheckLine]:
    return [
        CheckLine(str(check["name"]), bool(check["passed"]), str(check.get("what", "")), flattened(check.get("counts")))
        for check in (value if isinstance(value, list) else [])
    ]


def _listed(
    model: str,
    benchmark: str,
    section: int | None,
    headline: Sequence[Row],
    entries: Mapping[tuple[str, str, str], int],
) -> ListedPair:
    run = ("evaluations", f"{benchmark}|{model}", headline[0]["run_id"]) if headline else None
    return ListedPair(model, benchmark, headline, section, entries.get(run) if run else None)


def _pair(connection: duckdb.DuckDBPyConnection, number: int, listed: ListedPair) -> PairData:
    where = {"model": listed.model, "benchmark": listed.benchmark}
    headline = listed.headline
    blind = _rows(connection, _BLIND, **where)
    top_detector = next(iter(headline or _rows(connection, _PLAINEST, **where)), None)
    top: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    if top_detector is not None:
        by = {"detector": top_detector["detector"], "parameters": top_detector["parameters"]}
        top = _rows(connection, _TOP, **where, **by, count=TOP_EXAMPLES)
        if not headline:
            groups = _rows(connection, _GROUPS, **where, **by, count=TOP_GROUPS)
    return PairData(
        number=number,
        model=listed.model,
        benchmark=listed.benchmark,
        headline=headline,
        blind=blind[0] if blind else None,
        grid=_rows(connection, _GRID, **where),
        scores=[
            _labelled_scores(connection, **where, detector=row["detector"], parameters=row["parameters"])
            for row in headline
        ],
        not_scored=_rows(connection, _NOT_SCORED, **where),
        top_detector=top_detector,
        top=top,
        groups=groups,
        methods=list(dict.fromkeys(row["method"] for row in _rows(connection, _METHODS, **where))),
    )


def _labelled_scores(connection: duckdb.DuckDBPyConnection, **where: object) -> LabelledScores:
    table = connection.sql(_SCORES, params=where).to_arrow_table()
    return LabelledScores(
        scores=table.column("score").to_numpy().astype(np.float64),
        labels=table.column("label").to_numpy().astype(np.int8),
    )


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
