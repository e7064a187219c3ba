"""What stands behind the answers, read from the warehouse: splits, instrument, models, benchmarks, costs, lineage.

What belongs here: queries on some models and benchmarks, and their rows as parts of the report. What does not: the
answers (report_data.py), the evidence on one pair (report_section.py), what was not audited (report_coverage.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import duckdb

from audit_pipeline.evidence.headline import headline_detector
from audit_pipeline.metrics.claims import WHOEVER_RAN_THIS, rests_on
from audit_pipeline.report.document import (
    Answer,
    Benchmark,
    BlindControl,
    Change,
    Check,
    CorpusTest,
    Cost,
    DocumentsChange,
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
from audit_pipeline.report.rows import Row, cut, estimate, facts, flattened, rows
from audit_pipeline.report.summary import whole_set_words
from audit_pipeline.report.words import Q_LEVEL, Origin, claim_words, verdict_words

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
MAX_BENCHMARKS = 60
MAX_CHECKS = 60
MAX_NAMED = 10

_CONTROL_NAMES = ("words", "characters", "length", "dates")


def set_apart(connection: Connection, answers: Sequence[Answer], shown: Sequence[Answer], model: str | None) -> None:
    """Make the temporary tables that the queries here go by.

    asked_pairs and shown_pairs: of all ``answers`` and of those ``shown``, with the detector that answers;
    asked_tests: the tests of whole sets, of one ``model`` or of all.
    """
    for name, some in (("asked_pairs", answers), ("shown_pairs", shown)):
        columns = {
            "models": [one.model for one in some],
            "benchmarks": [one.benchmark for one in some],
            "detectors": [one.detector for one in some],
            "settings": [one.parameters for one in some],
        }
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT unnest($models::VARCHAR[]) AS model,"
            " unnest($benchmarks::VARCHAR[]) AS benchmark, unnest($detectors::VARCHAR[]) AS detector,"
            " unnest($settings::VARCHAR[]) AS parameters",
            columns,
        )
    connection.execute(_ASKED_TESTS, {"model": model})


_ASKED_TESTS = """
CREATE OR REPLACE TEMP TABLE asked_tests AS
SELECT tests.*, runs.finished_at, benchmarks.design, benchmarks.design_stated_by,
    coalesce((benchmarks.manifest ->> '$.spec.builder') = 'given', FALSE) AS handed_over,
    (SELECT max(found.value) FROM current_evaluations AS found
        WHERE found.model = tests.model AND found.benchmark = tests.benchmark
            AND found.detector = 'blind_control' AND found.metric = 'auroc') AS blind_auroc,
    (SELECT count(p_value) FROM corpus_tests AS every
        WHERE every.model = tests.model AND every.benchmark = tests.benchmark) AS p_values_so_far
FROM current_corpus_tests AS tests
LEFT JOIN (SELECT * FROM runs WHERE "table" = 'corpus_tests') AS runs
    ON runs.run_id = tests.run_id AND runs.model = tests.model AND runs.benchmark = tests.benchmark
LEFT JOIN benchmarks ON benchmarks.benchmark = tests.benchmark
WHERE $model IS NULL OR tests.model = $model
"""


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

# What is cut carries how many there are in all, in the column "all".
_OLDER = f"""
SELECT older.*, count(*) OVER () AS "all" FROM older_model_control AS older
SEMI JOIN shown_pairs USING (model, benchmark, detector, parameters)
ORDER BY benchmark, model, detector, older_release_date DESC, older_model LIMIT {MAX_OLDER}
"""  # noqa: S608 - a number of this module

_TIMELINE = f"""
WITH several AS (
    SELECT line.* FROM model_timeline AS line SEMI JOIN shown_pairs USING (model, benchmark)
    QUALIFY count(release_date) OVER (PARTITION BY benchmark, detector, parameters) > 1
)
SELECT several.*, count(*) OVER () AS "all" FROM several
SEMI JOIN shown_pairs USING (model, benchmark, detector, parameters)
ORDER BY benchmark, detector, parameters, release_date NULLS LAST, model LIMIT {MAX_TIMELINE}
"""  # noqa: S608 - a number of this module

_CHANGES = f"""
SELECT changed.*, count(*) OVER () AS "all" FROM changes_since_last_audit AS changed
JOIN shown_pairs AS shown USING (model, benchmark)
WHERE change NOT IN ('unchanged', 'first audit')
    AND ($every_detector OR (changed.detector = shown.detector AND changed.parameters = shown.parameters))
ORDER BY finished_at DESC, model, benchmark, changed.detector, changed.parameters LIMIT {MAX_CHANGES}
"""  # noqa: S608 - a number of this module

# Of audited texts only: of labelled groups nobody asks which of them stand out.
_DOCUMENTS_CHANGES = f"""
WITH ranked AS (
    SELECT *, row_number() OVER (
        PARTITION BY model, benchmark ORDER BY finished_at DESC NULLS LAST, run_id DESC
    ) AS place
    FROM runs SEMI JOIN shown_pairs USING (model, benchmark)
    WHERE "table" = 'group_tests'
        AND benchmark IN (SELECT benchmark FROM examples WHERE split = 'evaluation' AND label IS NULL)
), counted AS (
    SELECT shown.model, shown.benchmark, shown.detector, shown.parameters, ranked.place,
        any_value(ranked.finished_at) AS finished_at, any_value(ranked.benchmark_digest) AS digest,
        count(tests."group") AS tested,
        coalesce(list(tests."group" ORDER BY tests."group") FILTER (
            tests.q_bh <= {Q_LEVEL} AND tests.direction IS DISTINCT FROM 'opposite'), []) AS out
    FROM ranked JOIN shown_pairs AS shown USING (model, benchmark)
    LEFT JOIN group_tests AS tests
        ON tests.model = shown.model AND tests.benchmark = shown.benchmark AND tests.run_id = ranked.run_id
        AND tests.detector = shown.detector AND tests.parameters = shown.parameters AND tests.label IS NULL
    WHERE ranked.place <= 2 AND shown.detector IS NOT NULL GROUP BY ALL
)
SELECT now.model, now.benchmark, now.detector, now.parameters, now.tested, len(now.out) AS standing_out,
    past.tested AS previous_tested, len(past.out) AS previous_standing_out,
    list_sort(list_filter(now.out, lambda one: NOT list_contains(past.out, one))) AS newly,
    list_sort(list_filter(past.out, lambda one: NOT list_contains(now.out, one))) AS no_longer,
    now.digest = past.digest AS same_build, now.finished_at, past.finished_at AS previous_finished_at,
    count(*) OVER () AS "all"
FROM counted AS now JOIN counted AS past USING (model, benchmark)
WHERE now.place = 1 AND past.place = 2 AND (now.tested <> past.tested OR now.out <> past.out)
ORDER BY now.finished_at DESC, now.model, now.benchmark LIMIT {MAX_CHANGES}
"""  # noqa: S608 - numbers of this module and of report_words.py

_CORPUS_TESTS = f"""
SELECT *, count(*) OVER () AS "all" FROM asked_tests
ORDER BY status <> 'ok', list_position(['sound test', 'statistical evidence'], claim_level) NULLS LAST,
    p_value, model, benchmark, test, method LIMIT {MAX_TESTS}
"""  # noqa: S608 - a number of this module

_COSTS = f"""
SELECT cost.*, count(*) OVER () AS "all", sum(seconds) OVER () AS all_seconds
FROM cost SEMI JOIN asked_pairs USING (model, benchmark) WHERE is_latest
ORDER BY model, benchmark, started_at, stage LIMIT {MAX_COSTS}
"""  # noqa: S608 - a number of this module

_MODELS = """
SELECT models.*, (SELECT count(DISTINCT benchmark) FROM runs
    WHERE runs.model_fingerprint = models.fingerprint AND "table" = 'scores' AND is_current) AS benchmarks
FROM models WHERE models.name IN (SELECT model FROM shown_pairs UNION SELECT model FROM asked_tests)
ORDER BY models.name, models.fingerprint
"""

_BENCHMARKS = f"""
SELECT shown.benchmark, digest, design, manifest, count(*) OVER () AS "all"
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
    FROM asked_tests
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
    # Imported where a study is read: the terminal reads tests from here, and waits for no pictures.
    from audit_pipeline.report.study_plots import panels_of  # noqa: PLC0415

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


def _more(found: Sequence[Row]) -> int:
    """How many rows there are beyond those that were read."""
    return found[0]["all"] - len(found) if found else 0


def read_older_models(connection: Connection) -> tuple[list[OlderModel], int]:
    """The older-model control of the detectors that answer, and how many rows of it are not listed."""
    found = rows(connection, _OLDER)
    return [
        OlderModel(
            **{name: row[name] for name in ("benchmark", "detector", "parameters", "model", "older_model")},
            auroc=estimate(row, "auroc"),
            older_released=row["older_release_date"],
            first_text=row["first_text"],
            older_auroc=estimate(row, "older_auroc"),
            above_older=row["above_older"],
        )
        for row in found
    ], _more(found)


def read_timeline(connection: Connection) -> tuple[list[Timepoint], int]:
    """Benchmarks that several dated models were audited on, by the detectors that answer; how many are not listed."""
    found = rows(connection, _TIMELINE)
    return [
        Timepoint(
            **{name: row[name] for name in ("benchmark", "detector", "parameters", "model", "same_build")},
            released=row["release_date"],
            auroc=estimate(row, "auroc"),
            blind=row["blind_auroc"],
            change=row["change_in_auroc"],
        )
        for row in found
    ], _more(found)


def read_changes(connection: Connection, *, every_detector: bool) -> tuple[list[Change], int]:
    """What the latest audits changed, and how much is not listed; of the detectors that answer, unless every."""
    found = rows(connection, _CHANGES, every_detector=every_detector)
    return [
        Change(
            **{name: row[name] for name in ("model", "benchmark", "detector", "parameters", "change", "left_interval")},
            **{name: row[name] for name in ("claim_level", "previous_claim_level")},
            **{name: row[name] for name in ("finished_at", "previous_finished_at")},
            now=estimate(row, "auroc"),
            before=estimate(row, "previous_auroc"),
            because=_because(row),
        )
        for row in found
    ], _more(found)


def read_documents_changes(connection: Connection) -> tuple[list[DocumentsChange], int]:
    """Which documents stand out now and did not at the evaluation before, or no longer do; how many pairs more."""
    found = rows(connection, _DOCUMENTS_CHANGES)
    names = (
        *("model", "benchmark", "detector", "parameters", "tested", "standing_out"),
        *("previous_tested", "previous_standing_out", "same_build", "finished_at", "previous_finished_at"),
    )
    return [
        DocumentsChange(
            **{name: row[name] for name in names},
            newly=[cut(one, 300) for one in row["newly"][:MAX_NAMED]],
            more_newly=max(0, len(row["newly"]) - MAX_NAMED),
            no_longer=[cut(one, 300) for one in row["no_longer"][:MAX_NAMED]],
            more_no_longer=max(0, len(row["no_longer"]) - MAX_NAMED),
        )
        for row in found
    ], _more(found)


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


def read_corpus_tests(
    connection: Connection, entries: Mapping[tuple[str, str, str], int]
) -> tuple[list[CorpusTest], int]:
    """The tests of whole sets, those that found most first, and how many are not listed.

    A set of canaries need not be a benchmark.
    """
    found = rows(connection, _CORPUS_TESTS)
    return [_corpus_test(row, entries) for row in found], _more(found)


def tests_of(connection: Connection, model: str) -> list[CorpusTest]:
    """The latest result of every test of a whole set by one model."""
    set_apart(connection, [], [], model)
    return read_corpus_tests(connection, {})[0]


def _corpus_test(row: Row, entries: Mapping[tuple[str, str, str], int]) -> CorpusTest:
    refused = None if row["status"] == "ok" else row["reason"] or "refused"
    told = {name: row[name] for name in ("test", "p_value", "p_values_so_far", "claim_level", "direction")}
    stated_by = _stated_by(row)
    outcome, headline = whole_set_words(**told, refused=refused, origin=Origin(row["handed_over"], stated_by))
    names = ("model", "benchmark", "design", "statistic", "n", "n_held_out", "assumption", "method", "finished_at")
    return CorpusTest(
        **told,
        **{name: row[name] for name in names},
        outcome=outcome,
        headline=headline,
        refused=refused,
        claim_stated_by=stated_by,
        claim_in_words=claim_words(row["claim_level"], stated_by),
        lineage=entries.get(("corpus_tests", f"{row['benchmark']}|{row['model']}", row["run_id"])),
    )


def _stated_by(row: Row) -> str | None:
    """Whose word the claim level rests on: of a test set's order always that of whoever ran the test."""
    if row["test"] != "dataset_inference":
        return rests_on(row["claim_level"], WHOEVER_RAN_THIS if row["test"] == "sharded_permutation" else None, None)
    return rests_on(row["claim_level"], row["design_stated_by"], row["blind_auroc"])


def read_costs(connection: Connection) -> tuple[list[Cost], float | None, int]:
    """What every stage of the pairs took when it was last run, all of them together, and how many are not listed."""
    found = rows(connection, _COSTS)
    listed = [Cost(**{name: row[name] for name in Cost.model_fields}) for row in found]
    return listed, found[0]["all_seconds"] if found else None, _more(found)


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


def read_benchmarks(connection: Connection) -> tuple[list[Benchmark], int]:
    """The benchmarks of the shown pairs, as they were built, and how many are not listed."""
    found = rows(connection, _BENCHMARKS)
    return [_benchmark(connection, row) for row in found], _more(found)


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
