CREATE VIEW plan_in_force AS
WITH present AS (
    SELECT * FROM attempts WHERE is_current AND same_texts_as IS NULL AND kind IN ('search', 'detectors')
    QUALIFY row_number() OVER (PARTITION BY benchmark, model, kind ORDER BY started_at, run_id) = 1
), before AS (
    SELECT present.benchmark, present.model, present.kind, count(DISTINCT earlier.run_id) AS passes_before
    FROM present JOIN attempts AS earlier USING (benchmark, model)
    WHERE earlier.started_at < present.sealed_at GROUP BY ALL
), sealed AS (
    SELECT benchmark, model, count(*) AS plans_sealed FROM plans GROUP BY ALL
), differing AS (
    SELECT benchmark, model, kind, count(*) AS deviations, string_agg(DISTINCT item, ', ' ORDER BY item) FILTER (item IN (
        'benchmark digest', 'model fingerprint', 'tokenizer fingerprint', 'sha256 of the plan'
    )) AS other_subject FROM plan_deviations GROUP BY ALL
)
SELECT present.benchmark, present.model, present.kind, present.run_id, present.started_at, plans.plan_sha256,
    plans.sealed_at, plans.timestamped_at, plans.authority,
    (plans.plan ->> '$.texts_in_cache')::BIGINT AS texts_in_cache,
    (plans.plan ->> '$.rows_forgotten')::BIGINT AS rows_forgotten,
    CASE WHEN plans.plan IS NOT NULL THEN coalesce(passes_before, 0) END AS passes_before,
    CASE WHEN plans.plan IS NOT NULL THEN coalesce(deviations, 0) END AS deviations,
    coalesce(plans_sealed, 0) AS plans_sealed, other_subject,
    plans.plan IS NOT NULL AND coalesce(passes_before, 0) = 0 AND texts_in_cache = 0 AND other_subject IS NULL
        AND coalesce(plans.timestamped_at <= present.started_at, TRUE) AS planned_beforehand
FROM present LEFT JOIN before USING (benchmark, model, kind) LEFT JOIN differing USING (benchmark, model, kind)
LEFT JOIN sealed USING (benchmark, model)
LEFT JOIN plans ON plans.benchmark = present.benchmark AND plans.model = present.model
    AND plans.sealed_at = present.sealed_at
ORDER BY present.benchmark, present.model, present.kind;

COMMENT ON VIEW plan_in_force IS
    'plan in force when the current results were computed, one row per pair and kind of result; the plan''s columns are null if no plan was sealed before';
COMMENT ON COLUMN plan_in_force.benchmark IS 'benchmark';
COMMENT ON COLUMN plan_in_force.model IS 'model';
COMMENT ON COLUMN plan_in_force.kind IS 'search | detectors: kind of the planned results';
COMMENT ON COLUMN plan_in_force.run_id IS 'run of the results; joins to lineage.run_id';
COMMENT ON COLUMN plan_in_force.started_at IS 'time when the run started this kind of work';
COMMENT ON COLUMN plan_in_force.plan_sha256 IS 'sha256 of the plan';
COMMENT ON COLUMN plan_in_force.sealed_at IS 'time of sealing by the clock of this machine';
COMMENT ON COLUMN plan_in_force.timestamped_at IS 'time of the timestamp authority; null: no timestamp';
COMMENT ON COLUMN plan_in_force.authority IS 'name of the timestamp authority';
COMMENT ON COLUMN plan_in_force.texts_in_cache IS
    'number of texts and documents with cached rows of the model at the time of sealing';
COMMENT ON COLUMN plan_in_force.rows_forgotten IS
    'number of ledger entries of any model and benchmark that were erased before; passes among them are not counted';
COMMENT ON COLUMN plan_in_force.passes_before IS
    'number of runs on these texts that started before the sealing, by the ledger (view attempts)';
COMMENT ON COLUMN plan_in_force.deviations IS 'number of differences between plan and results (view plan_deviations)';
COMMENT ON COLUMN plan_in_force.plans_sealed IS 'number of sealed plans of this pair';
COMMENT ON COLUMN plan_in_force.other_subject IS
    'digests (items of plan_deviations) that differ, so that the results belong to another audit than the plan; null: no digest differs';
COMMENT ON COLUMN plan_in_force.planned_beforehand IS
    'true if the plan covers these results and was sealed (and timestamped, if it has a timestamp) before any recorded pass of the model over these texts';
