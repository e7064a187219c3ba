"""What stands behind the answers, read from the warehouse: splits, instrument, models, benchmarks, costs, lineage.

What belongs here: queries on some models and benchmarks, and their rows as parts of the report. What does not: the
answers (report_data.py), the evidence on one pair (report_section.py), what was not audited (report_coverage.py).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence

import duckdb

from audit_pipeline.evaluation.headline import headline_detector
from audit_pipeline.warehouse.report_document import (
    Answer,
    Benchmark,
    BlindControl,
    Change,
    Check,
    CorpusTest,
    Cost,
    Environment,
    Estimate,
    Fact,
    Gap,
    InstrumentCheck,
    LineageEntry,
    MatchedStep,
    Model,
    OlderModel,
    Side,
    Source,
    Split,
    Study,
    StudyLine,
    StudyPanel,
    StudyPoint,
    Timepoint,
)
from audit_pipeline.warehouse.report_rows import Row, cut, estimate, facts, flattened, rows
from audit_pipeline.warehouse.report_words import verdict_words
from audit_pipeline.warehouse.study_plots import panels_of

Connection = duckdb.DuckDBPyConnection

MAX_SOURCES = 40
MAX_FACTS = 60
MAX_GAPS = 50
MAX_LINEAGE = 300
MAX_CHANGES = 80
MAX_TIMELINE = 120
MAX_OLDER = 80
MAX_COSTS = 120
MAX_TESTS = 80
MAX_COMMANDS = 40
MAX_BENCHMARKS = 60
MAX_CHECKS = 60

_CONTROL_NAMES = ("words", "characters", "length", "dates")


def set_apart(connection: Connection, pairs: Sequence[tuple[str, str]]) -> None:
    """Make the temporary table shown_pairs, which the queries here go by, of (model, benchmark)."""
    connection.execute("CREATE OR REPLACE TEMP TABLE shown_pairs (model VARCHAR, benchmark VARCHAR)")
    if pairs:
        connection.executemany("INSERT INTO shown_pairs VALUES (?, ?)", [list(pair) for pair in pairs])


_SPLITS = """
SELECT summary.*, benchmarks.manifest -> 'matched' -> 'achieved' AS achieved
FROM split_summary AS summary SEMI JOIN shown_pairs ON shown_pairs.benchmark = summary.benchmark
LEFT JOIN benchmarks ON benchmarks.benchmark = summary.benchmark ORDER BY summary.benchmark
"""

_CONTROLS = f"""
SELECT benchmark, part AS name, "value" AS auroc, ci_low AS auroc_low, ci_high AS auroc_high, n, method
FROM split_quality SEMI JOIN shown_pairs USING (benchmark) WHERE measure = 'blind_auroc'
ORDER BY benchmark, list_position({list(_CONTROL_NAMES)}, part), part
"""  # noqa: S608 - names of this module

_STUDIES = "SELECT DISTINCT study FROM control_studies ORDER BY study"
_STUDY = "SELECT * FROM control_studies WHERE study = $study"

_OLDER = f"""
SELECT older.* FROM older_model_control AS older
SEMI JOIN shown_pairs USING (model, benchmark)
ORDER BY benchmark, model, detector, older_release_date DESC, older_model LIMIT {10 * MAX_OLDER}
"""  # noqa: S608 - a number of this module

_TIMELINE = """
SELECT line.* FROM model_timeline AS line SEMI JOIN shown_pairs USING (model, benchmark)
QUALIFY count(release_date) OVER (PARTITION BY benchmark, detector, parameters) > 1
ORDER BY benchmark, detector, parameters, release_date NULLS LAST, model
"""

_CHANGES = """
SELECT changed.* FROM changes_since_last_audit AS changed SEMI JOIN shown_pairs USING (model, benchmark)
WHERE change NOT IN ('unchanged', 'first audit')
ORDER BY finished_at DESC, model, benchmark, detector, parameters
"""

_CORPUS_TESTS = f"""
SELECT * FROM current_corpus_tests WHERE $model IS NULL OR model = $model
ORDER BY model, benchmark, test, method LIMIT {MAX_TESTS}
"""  # noqa: S608 - a number of this module

_COSTS = f"""
SELECT cost.* FROM cost SEMI JOIN shown_pairs USING (model, benchmark) WHERE is_latest
ORDER BY model, benchmark, started_at, stage LIMIT {MAX_COSTS}
"""  # noqa: S608 - a number of this module

_MODELS = """
SELECT models.*, (SELECT count(DISTINCT benchmark) FROM runs
    WHERE runs.model_fingerprint = models.fingerprint AND "table" = 'scores' AND is_current) AS benchmarks
FROM models SEMI JOIN shown_pairs ON shown_pairs.model = models.name ORDER BY models.name, models.fingerprint
"""

_BENCHMARKS = f"""
SELECT shown.benchmark, digest, design, manifest
FROM (SELECT DISTINCT benchmark FROM shown_pairs) AS shown LEFT JOIN benchmarks USING (benchmark)
ORDER BY shown.benchmark LIMIT {MAX_BENCHMARKS}
"""  # noqa: S608 - a number of this module

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

_USED = """
WITH shown AS (
    SELECT "table", benchmark || '|' || model AS "partition", run_id
    FROM current_runs SEMI JOIN shown_pairs USING (model, benchmark)
    UNION SELECT 'corpus_tests', benchmark || '|' || model, run_id
    FROM current_corpus_tests SEMI JOIN shown_pairs USING (model, benchmark)
    UNION SELECT 'examples', benchmark, run_id FROM examples SEMI JOIN shown_pairs USING (benchmark)
    UNION SELECT 'split_quality', benchmark, run_id FROM split_quality SEMI JOIN shown_pairs USING (benchmark)
    UNION SELECT 'documents', source, run_id FROM documents
        WHERE document_id IN (SELECT document_id FROM examples SEMI JOIN shown_pairs USING (benchmark))
    UNION SELECT 'control_studies', study, run_id FROM control_studies
), explaining AS (
    FROM lineage SEMI JOIN shown
        ON shown."table" = lineage."table" AND shown."partition" = lineage."partition" AND shown.run_id = lineage.run_id
)
"""

_LINEAGE = f"""
{_USED} SELECT * FROM explaining
ORDER BY list_position(['evaluations', 'split_quality', 'examples', 'scores', 'documents'], "table") NULLS LAST,
    "table", "partition", finished_at, run_id LIMIT {MAX_LINEAGE}
"""  # noqa: S608 - of this module

_LINEAGE_COUNT = f"{_USED} SELECT count(*) AS entries FROM explaining"  # noqa: S608 - of this module

_INSTRUMENT = "FROM instrument_check"


def read_splits(connection: Connection, entries: Mapping[tuple[str, str, str], int]) -> list[Split]:
    """What tells the two sides of the shown benchmarks apart without a model."""
    controls: dict[str, list[Row]] = {}
    for row in rows(connection, _CONTROLS):
        controls.setdefault(row["benchmark"], []).append(row)
    names = (
        *("benchmark", "split_verdict", "overlap_7", "overlap_13", "near_duplicate_pairs", "is_current"),
        *("other_language_members", "other_language_nonmembers"),
        *("texts_members", "texts_nonmembers", "groups_members", "groups_nonmembers"),
    )
    return [
        Split(
            **{name: row[name] for name in names},
            verdict_in_words=verdict_words(row["split_verdict"]),
            controls=[
                BlindControl(
                    name=control["name"],
                    auroc=estimate(control, "auroc", control["method"]),
                    n=control["n"],
                    strongest=control["name"] == row["worst_control"],
                )
                for control in controls.get(row["benchmark"], [])
            ],
            matched=_matched(row["achieved"]),
            lineage=entries.get(("split_quality", row["benchmark"], row["run_id"])),
        )
        for row in rows(connection, _SPLITS)
    ]


def _matched(achieved: str | None) -> list[MatchedStep]:
    return [
        MatchedStep(
            name=name,
            auroc=Estimate(value=one["blind_auroc"], low=one["ci_low"], high=one["ci_high"], method=one.get("method")),
            n=one["n"],
        )
        for name, one in (json.loads(achieved) if achieved else {}).items()
    ]


def read_instrument(connection: Connection) -> list[InstrumentCheck]:
    """What detectors made of texts of which it is known what the model was trained on."""
    found = rows(connection, _INSTRUMENT)
    chosen = {
        control: headline_detector({row["detector"] for row in found if row["control"] == control})
        for control in {row["control"] for row in found}
    }
    return [
        InstrumentCheck(
            **{name: row[name] for name in ("control", "benchmark", "detector", "parameters")},
            exposed=Estimate(value=row["exposed_auroc"], low=row["exposed_low"], high=row["exposed_high"]),
            twin=Estimate(value=row["twin_auroc"], low=row["twin_low"], high=row["twin_high"]),
            blind=Estimate(value=row["blind_auroc"], low=row["blind_low"], high=row["blind_high"]),
            answers=row["detector"] == chosen[row["control"]],
        )
        for row in found
    ]


def read_studies(connection: Connection) -> list[Study]:
    """The studies of controls, seeds averaged."""
    return [
        Study(
            name=row["study"],
            panels=[
                StudyPanel(
                    setting=panel.setting,
                    values=list(panel.values),
                    lines=[
                        StudyLine(
                            detector=detector,
                            points=[
                                StudyPoint(value=one.label, auroc=Estimate(value=one.value, low=one.low, high=one.high))
                                for one in points
                            ],
                        )
                        for detector, points in panel.lines
                    ],
                )
                for panel in panels_of(connection.sql(_STUDY, params={"study": row["study"]}).to_arrow_table())
            ],
        )
        for row in rows(connection, _STUDIES)
    ]


Answering = Mapping[tuple[str, str], tuple[str | None, str | None]]
"""(model, benchmark): the detector that answers and its parameters."""


def _is_answer(row: Row, answering: Answering) -> bool:
    return answering.get((row["model"], row["benchmark"])) == (row["detector"], row["parameters"])


def read_older_models(connection: Connection, answering: Answering) -> list[OlderModel]:
    """The older-model control of the detectors that answer."""
    return [
        OlderModel(
            **{name: row[name] for name in ("benchmark", "detector", "parameters", "model", "older_model")},
            auroc=estimate(row, "auroc"),
            older_released=row["older_release_date"],
            first_text=row["first_text"],
            older_auroc=estimate(row, "older_auroc"),
            above_older=row["above_older"],
        )
        for row in rows(connection, _OLDER)
        if _is_answer(row, answering)
    ][:MAX_OLDER]


def read_timeline(connection: Connection, answering: Answering) -> list[Timepoint]:
    """Benchmarks that several dated models were audited on, by the detectors that answer."""
    return [
        Timepoint(
            **{name: row[name] for name in ("benchmark", "detector", "parameters", "model", "same_build")},
            released=row["release_date"],
            auroc=estimate(row, "auroc"),
            blind=row["blind_auroc"],
            change=row["change_in_auroc"],
        )
        for row in rows(connection, _TIMELINE)
        if _is_answer(row, answering)
    ][:MAX_TIMELINE]


def read_changes(connection: Connection, answering: Answering, *, every_detector: bool) -> list[Change]:
    """What the latest audits changed; of the detectors that answer only, unless ``every_detector``."""
    return [
        Change(
            **{name: row[name] for name in ("model", "benchmark", "detector", "parameters", "change", "left_interval")},
            **{name: row[name] for name in ("claim_level", "previous_claim_level")},
            **{name: row[name] for name in ("finished_at", "previous_finished_at")},
            now=estimate(row, "auroc"),
            before=estimate(row, "previous_auroc"),
            because=_because(row),
        )
        for row in rows(connection, _CHANGES)
        if every_detector or _is_answer(row, answering)
    ][:MAX_CHANGES]


def _because(row: Row) -> list[str]:
    named = [
        words
        for column, words in (
            ("benchmark_changed", "another build of the benchmark"),
            ("model_changed", "other files of the model"),
            ("code_changed", "another code version"),
        )
        if row[column]
    ]
    if not row["benchmark_changed"] and row["inputs_changed"]:
        named.append(f"other inputs: {cut(', '.join(row['inputs_changed']), 200)}")
    if row["packages_changed"]:
        named.append(f"other versions of {cut(', '.join(row['packages_changed']), 200)}")
    return named


def read_corpus_tests(connection: Connection, model: str | None) -> list[CorpusTest]:
    """The tests of whole sets, of one model or of all: a set of canaries need not be a benchmark."""
    names = ("model", "benchmark", "test", "p_value", "statistic", "n", "n_held_out", "assumption", "method")
    return [
        CorpusTest(
            **{name: row[name] for name in (*names, "claim_level")},
            refused=None if row["status"] == "ok" else row["reason"] or "refused",
        )
        for row in rows(connection, _CORPUS_TESTS, model=model)
    ]


def read_costs(connection: Connection) -> list[Cost]:
    """What every stage of the shown pairs took when it was last run."""
    return [Cost(**{name: row[name] for name in Cost.model_fields}) for row in rows(connection, _COSTS)]


def read_models(connection: Connection) -> list[Model]:
    """The models of the shown pairs, as they were loaded."""
    labels = (
        *(("loaded from", "resolved_from"), ("revision", "revision"), ("number format", "dtype")),
        *(("attention back end", "attention"), ("start token", "start_token"), ("parameters", "parameters")),
        *(("context length", "context_length"), ("vocabulary", "vocab_size"), ("released", "release_date")),
        *(("training cutoff", "training_cutoff"), ("tokenizer fingerprint", "tokenizer_fingerprint")),
    )
    return [
        Model(
            name=row["name"],
            fingerprint=row["fingerprint"],
            facts=[
                Fact(name=label, value=cut(f"{row[column]:,}" if isinstance(row[column], int) else row[column], 300))
                for label, column in labels
                if row[column] is not None
            ]
            + ([] if row["training_cutoff"] else [Fact(name="training cutoff", value="not known")]),
            benchmarks=row["benchmarks"],
        )
        for row in rows(connection, _MODELS)
    ]


def read_benchmarks(connection: Connection) -> list[Benchmark]:
    """The benchmarks of the shown pairs, as they were built."""
    return [_benchmark(connection, row) for row in rows(connection, _BENCHMARKS)]


def _benchmark(connection: Connection, row: Row) -> Benchmark:
    name = row["benchmark"]
    manifest = json.loads(row["manifest"]) if row["manifest"] else {}
    shown_apart = ("benchmark", "digest", "design", "description", "checks", "matched")
    description = manifest.get("description")
    sources = rows(connection, _SOURCES, benchmark=name)
    return Benchmark(
        name=name,
        description=cut(str(description), 600) if description else None,
        design=row["design"],
        digest=row["digest"],
        sides=[
            Side(
                label=side["label"],
                split=side["split"],
                fewest_words=side["fewest"],
                most_words=side["most"],
                language=side["language"],
                texts=side["texts"],
                groups=side["groups"],
                earliest=side["earliest"],
                latest=side["latest"],
            )
            for side in rows(connection, _SIDES, benchmark=name)
        ],
        checks=_checks(manifest.get("checks")),
        sources=[Source(**{one: source[one] for one in Source.model_fields}) for source in sources[:MAX_SOURCES]],
        more_sources=max(0, len(sources) - MAX_SOURCES),
        manifest=facts({key: value for key, value in manifest.items() if key not in shown_apart}, most=MAX_FACTS),
    )


def _checks(value: object) -> list[Check]:
    return [
        Check(
            name=str(check["name"]),
            passed=bool(check["passed"]),
            what=str(check.get("what", "")),
            counts=facts(check.get("counts"), most=MAX_FACTS),
        )
        for check in (value if isinstance(value, list) else [])
    ][:MAX_CHECKS]


def read_lineage(connection: Connection) -> tuple[list[LineageEntry], list[Environment], int]:
    """The entries behind what is shown, the environments that they ran in, and how many entries there are in all."""
    environments: dict[str, int] = {}
    entries = []
    columns = (
        *("table", "partition", "run_id", "asset_key", "code_version", "data_version", "model_fingerprint"),
        *("tokenizer_fingerprint", "benchmark_digest", "started_at", "finished_at"),
    )
    for number, row in enumerate(rows(connection, _LINEAGE), start=1):
        environment = environments.setdefault(row["package_versions"], len(environments) + 1)
        entries.append(
            LineageEntry(
                **{name: row[name] for name in columns},
                number=number,
                inputs=facts(json.loads(row["upstream_data_versions"]), most=MAX_FACTS),
                environment=environment,
            )
        )
    packages = [
        Environment(
            number=number, packages=[Fact(name=name, value=value) for name, value in flattened(json.loads(versions))]
        )
        for versions, number in environments.items()
    ]
    return entries, packages, rows(connection, _LINEAGE_COUNT)[0]["entries"]


def gaps_of(found: Sequence[Row]) -> list[Gap]:
    """The gaps that are named."""
    return [
        Gap(
            table=row["table"],
            partition=row["partition"],
            run_id=row["run_id"],
            rows=row["rows"],
            entries=row["lineage_rows"],
        )
        for row in found[:MAX_GAPS]
    ]


def commands(answers: Sequence[Answer]) -> tuple[list[str], int]:
    """What runs the same audits again, and how many are not listed."""
    each = [
        shlex.join(["corpus-audit", "audit", "--model", answer.model, "--benchmark", answer.benchmark])
        for answer in sorted(answers, key=lambda answer: (answer.model, answer.benchmark))
    ]
    listed = each[:MAX_COMMANDS]
    return [*listed, "corpus-audit report"] if listed else [], len(each) - len(listed)
