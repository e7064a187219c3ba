"""The views coverage and not_audited: what became of every model on every benchmark.

What belongs here: the rule that gives each pair its status, in SQL, and what its columns mean. What does not: the
tables it reads (schema.py), how the report lays it out (report_coverage.py).

The rule, for a pair of the configuration or of any earlier run:

* An outcome newer than the pair's audit decides: the pair is ``failed`` or ``not_applicable``.
* Else the latest audit decides. It is ``stale`` where what it rests on has changed, else ``done``. A finding without a
  lineage entry, or on a benchmark that is no longer configured or no longer built, counts as stale: nobody can say
  that it still holds.
* Else the pair is ``missing``. Where its model or its benchmark is on request, it is not there at all.

The audit is the latest evaluation, or the latest scores where the benchmark's evaluation split holds no labelled text,
so that there is nothing to evaluate. A benchmark counts as removed from the configuration only where that names any: an
unreadable benchmarks.yaml names none. A model that is not configured is no reason to doubt a finding: any hub id or
path can be audited from the command line. What a model is now are the fingerprints seen last under its name: by the
lineage of any of its runs, or on its card when it was first loaded. A model changed back and not run since therefore
counts as changed.
"""

from __future__ import annotations

from collections.abc import Mapping

STATUSES = ("failed", "not_applicable", "stale", "missing", "done")
"""Worst first: a fault, input that cannot be used, a number that may no longer hold, no number, all as it should be."""

REBUILT = "the benchmark was rebuilt since"
CHANGED = "its entry in the configuration or its sources changed since it was built"
OTHER_MODEL = "the model's files changed since"
NO_LONGER_BUILT = "the benchmark is no longer built"
NO_LONGER_CONFIGURED = "the benchmark is no longer in the configuration"
NO_LINEAGE = "no lineage entry says what it rests on"
NOT_BUILT = "the benchmark has not been built"
NOT_EVALUATED = "scored, not evaluated"
NEVER = "never audited"


def _text(words: str) -> str:
    return "'" + words.replace("'", "''") + "'"


COVERAGE = f"""
WITH built AS (
    SELECT benchmark, max(digest) AS digest FROM benchmarks GROUP BY benchmark
), unlabelled AS (
    SELECT benchmark FROM examples GROUP BY benchmark HAVING count(label) FILTER (split = 'evaluation') = 0
), audits AS (
    SELECT model, benchmark, run_id, finished_at, "table" FROM current_runs
    WHERE "table" = CASE WHEN benchmark IN (FROM unlabelled) THEN 'scores' ELSE 'evaluations' END
), explained AS (
    SELECT audits.*, lineage.benchmark_digest, lineage.model_fingerprint, lineage.tokenizer_fingerprint
    FROM audits LEFT JOIN lineage
        ON lineage."table" = audits."table" AND lineage.run_id = audits.run_id
        AND lineage."partition" = audits.benchmark || '|' || audits.model
    QUALIFY row_number() OVER (
        PARTITION BY audits.model, audits.benchmark
        ORDER BY lineage.finished_at DESC NULLS LAST, lineage.data_version DESC
    ) = 1
), stopped AS (
    SELECT * FROM outcomes
    QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY recorded_at DESC, run_id DESC) = 1
), sightings AS (
    SELECT split_part("partition", '|', 2) AS model, model_fingerprint, tokenizer_fingerprint, finished_at AS seen_at
    FROM lineage WHERE model_fingerprint IS NOT NULL
    UNION ALL
    SELECT name, fingerprint, tokenizer_fingerprint, TRY_CAST(first_loaded_at AS TIMESTAMPTZ)
    FROM models WHERE name IS NOT NULL
), present AS (
    SELECT * FROM sightings
    QUALIFY row_number() OVER (
        PARTITION BY model
        ORDER BY seen_at DESC NULLS LAST, model_fingerprint DESC, tokenizer_fingerprint DESC NULLS LAST
    ) = 1
), pairs AS (
    SELECT configured_models.name AS model, configured_benchmarks.benchmark
    FROM configured_models CROSS JOIN configured_benchmarks
    WHERE NOT configured_models.on_request AND NOT configured_benchmarks.on_request
    UNION SELECT model, benchmark FROM current_runs
    UNION SELECT model, benchmark FROM outcomes
), known AS (
    SELECT pairs.model, pairs.benchmark,
        pairs.model IN (SELECT name FROM configured_models) AND asked.benchmark IS NOT NULL AS is_configured,
        built.benchmark IS NOT NULL AS is_built,
        EXISTS (FROM configured_benchmarks) AND asked.benchmark IS NULL AS is_removed,
        runs.model IS NOT NULL AS has_run,
        explained.run_id AS audit_run,
        explained.finished_at AS audited_at,
        stopped.status AS stopped_status,
        stopped.reason AS stopped_reason,
        stopped.stage AS stopped_stage,
        stopped.run_id AS stopped_run,
        stopped.recorded_at AS stopped_at,
        stopped.run_id IS NOT NULL AND coalesce(stopped.recorded_at > explained.finished_at, TRUE) AS is_stopped,
        explained.benchmark_digest <> built.digest AS is_rebuilt,
        NOT asked.is_up_to_date AS is_changed,
        present.model_fingerprint <> explained.model_fingerprint
            OR present.tokenizer_fingerprint <> explained.tokenizer_fingerprint AS is_other_model
    FROM pairs
    LEFT JOIN (SELECT DISTINCT model, benchmark FROM current_runs) AS runs
        ON runs.model = pairs.model AND runs.benchmark = pairs.benchmark
    LEFT JOIN explained ON explained.model = pairs.model AND explained.benchmark = pairs.benchmark
    LEFT JOIN stopped ON stopped.model = pairs.model AND stopped.benchmark = pairs.benchmark
    LEFT JOIN built ON built.benchmark = pairs.benchmark
    LEFT JOIN configured_benchmarks AS asked ON asked.benchmark = pairs.benchmark
    LEFT JOIN present ON present.model = pairs.model
), doubted AS (
    SELECT *, concat_ws('; ',
        CASE WHEN audited_at IS NULL THEN {_text(NO_LINEAGE)} END,
        CASE WHEN is_removed THEN {_text(NO_LONGER_CONFIGURED)} END,
        CASE WHEN NOT is_built THEN {_text(NO_LONGER_BUILT)} END,
        CASE WHEN is_rebuilt THEN {_text(REBUILT)} END,
        CASE WHEN is_built AND is_changed THEN {_text(CHANGED)} END,
        CASE WHEN is_other_model THEN {_text(OTHER_MODEL)} END
    ) AS doubts
    FROM known
)
SELECT model, benchmark, is_configured,
    CASE WHEN is_stopped THEN stopped_status WHEN audit_run IS NULL THEN 'missing'
        WHEN doubts <> '' THEN 'stale' ELSE 'done' END AS status,
    CASE WHEN is_stopped THEN stopped_reason
        WHEN audit_run IS NULL THEN CASE WHEN NOT is_built THEN {_text(NOT_BUILT)}
            WHEN has_run THEN {_text(NOT_EVALUATED)} ELSE {_text(NEVER)} END
        WHEN doubts <> '' THEN doubts END AS reason,
    CASE WHEN is_stopped THEN stopped_stage END AS stage,
    audited_at AS last_audited_at,
    stopped_at AS outcome_at,
    CASE WHEN is_stopped THEN stopped_run ELSE audit_run END AS run_id
FROM doubted ORDER BY model, benchmark
"""  # noqa: S608 - words from this module

NOT_AUDITED = f"""
SELECT * FROM coverage WHERE status <> 'done'
ORDER BY list_position([{", ".join(map(_text, STATUSES))}], status), model, benchmark
"""  # noqa: S608 - words from this module

COLUMNS: Mapping[str, str] = {
    "model": "the model's name in config/models.yaml, hub id or path",
    "benchmark": "the benchmark",
    "is_configured": "whether both are in the configuration; if not, an earlier run named them",
    "status": "done | stale (what it rests on has changed) | missing | not_applicable (input is missing or wrong)"
    " | failed (any other fault)",
    "reason": "why the status is not done; null where it is",
    "stage": "the stage at which the run gave the pair up; null where none did since the latest audit",
    "last_audited_at": "when the latest audit's numbers were ready; null where there is none",
    "outcome_at": "when a run gave the pair up last, be it before the latest audit; null where none ever did",
    "run_id": "the run that the status rests on; null where there is none",
}
