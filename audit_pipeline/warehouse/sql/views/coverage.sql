-- What became of every model on every benchmark.
--
-- The rule, for a pair of the configuration or of any earlier run:
--
-- * An outcome newer than the pair's audit decides: the pair is failed or not_applicable.
-- * Else the latest audit decides. It is stale where what it rests on has changed, else done. A finding without a
--   lineage entry, or on a benchmark that is no longer configured or no longer built, counts as stale: nobody can say
--   that it still holds.
-- * Else the pair is missing. Where its model or its benchmark is on request, it is not there at all.
--
-- The audit is the latest evaluation, or the latest scores where the benchmark's evaluation split holds no labelled
-- text, so that there is nothing to evaluate. A benchmark counts as removed from the configuration only where that
-- names any: an unreadable benchmarks.yaml names none. A model that is not configured is no reason to doubt a finding:
-- any hub id or path can be audited from the command line. What a model is now are the fingerprints seen last under its
-- name: by the lineage of any of its runs, or on its card when it was first loaded. A model changed back and not run
-- since therefore counts as changed.
CREATE VIEW coverage AS
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
        CASE WHEN audited_at IS NULL THEN 'no lineage entry says what it rests on' END,
        CASE WHEN is_removed THEN 'the benchmark is no longer in the configuration' END,
        CASE WHEN NOT is_built THEN 'the benchmark is no longer built' END,
        CASE WHEN is_rebuilt THEN 'the benchmark was rebuilt since' END,
        CASE WHEN is_built AND is_changed
            THEN 'its entry in the configuration or its sources changed since it was built' END,
        CASE WHEN is_other_model THEN 'the model''s files changed since' END
    ) AS doubts
    FROM known
)
SELECT model, benchmark, is_configured,
    CASE WHEN is_stopped THEN stopped_status WHEN audit_run IS NULL THEN 'missing'
        WHEN doubts <> '' THEN 'stale' ELSE 'done' END AS status,
    CASE WHEN is_stopped THEN stopped_reason
        WHEN audit_run IS NULL THEN CASE WHEN NOT is_built THEN 'the benchmark has not been built'
            WHEN has_run THEN 'scored, not evaluated' ELSE 'never audited' END
        WHEN doubts <> '' THEN doubts END AS reason,
    CASE WHEN is_stopped THEN stopped_stage END AS stage,
    audited_at AS last_audited_at,
    stopped_at AS outcome_at,
    CASE WHEN is_stopped THEN stopped_run ELSE audit_run END AS run_id
FROM doubted ORDER BY model, benchmark;

COMMENT ON VIEW coverage IS
    'what became of every model on every benchmark: of the configuration, and of every earlier run';
COMMENT ON COLUMN coverage.model IS 'the model''s name in config/models.yaml, hub id or path';
COMMENT ON COLUMN coverage.benchmark IS 'the benchmark';
COMMENT ON COLUMN coverage.is_configured IS 'whether both are in the configuration; if not, an earlier run named them';
COMMENT ON COLUMN coverage.status IS
    'done | stale (what it rests on has changed) | missing | not_applicable (input is missing or wrong)'
    ' | failed (any other fault)';
COMMENT ON COLUMN coverage.reason IS 'why the status is not done; null where it is';
COMMENT ON COLUMN coverage.stage IS
    'the stage at which the run gave the pair up; null where none did since the latest audit';
COMMENT ON COLUMN coverage.last_audited_at IS 'when the latest audit''s numbers were ready; null where there is none';
COMMENT ON COLUMN coverage.outcome_at IS
    'when a run gave the pair up last, be it before the latest audit; null where none ever did';
COMMENT ON COLUMN coverage.run_id IS 'the run that the status rests on; null where there is none';
