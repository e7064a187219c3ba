CREATE VIEW plan_deviations AS
WITH planned AS (
    SELECT attempt.benchmark, attempt.model, attempt.kind, attempt.run_id, plans.plan::JSON AS plan, plans.plan_sha256,
        sha256(plans.plan) AS computed_sha256
    FROM attempts AS attempt JOIN plans ON plans.benchmark = attempt.benchmark
        AND plans.model = attempt.model AND plans.sealed_at = attempt.sealed_at
    WHERE attempt.is_current AND attempt.same_texts_as IS NULL AND attempt.kind IN ('search', 'detectors')
), made AS (
    SELECT planned.*, lineage."table", lineage.benchmark_digest, lineage.model_fingerprint,
        lineage.tokenizer_fingerprint, lineage.code_version, lineage.package_versions::JSON AS packages,
        lineage.settings::JSON AS settings
    FROM planned JOIN lineage ON lineage.run_id = planned.run_id
        AND lineage."partition" = planned.benchmark || '|' || planned.model
        AND list_contains(
            CASE kind WHEN 'search' THEN ['document_memorisation'] ELSE ['scores', 'evaluations'] END, lineage."table"
        )
), versions AS (
    SELECT *, plan -> '$.package_versions' AS promised,
        unnest(list_distinct(list_concat(json_keys(plan -> '$.package_versions'), json_keys(packages)))) AS name
    FROM made
), options AS (
    SELECT *, nullif(plan -> '$.extraction', 'null') AS promised,
        unnest(list_distinct(list_concat(json_keys(promised), json_keys(settings)))) AS name
    FROM made WHERE kind = 'search'
), compared AS (
    SELECT benchmark, model, kind, run_id, unnest([
        {'item': 'sha256 of the plan', 'planned': plan_sha256, 'found': computed_sha256},
        {'item': 'benchmark digest', 'planned': plan ->> '$.benchmark_digest', 'found': benchmark_digest},
        {'item': 'model fingerprint', 'planned': plan ->> '$.model_fingerprint', 'found': model_fingerprint},
        {'item': 'tokenizer fingerprint', 'planned': plan ->> '$.tokenizer_fingerprint',
            'found': tokenizer_fingerprint},
        {'item': 'code version of ' || "table", 'planned': plan ->> ('$.code_versions.' || "table"),
            'found': code_version}
    ], recursive := TRUE) FROM made
    UNION ALL SELECT benchmark, model, kind, run_id, 'package ' || name, promised ->> name, packages ->> name
    FROM versions
    UNION ALL SELECT benchmark, model, kind, run_id, 'setting of the search: ' || name, promised ->> name,
        settings ->> name FROM options WHERE name <> 'price_per_million'
    UNION ALL SELECT planned.benchmark, planned.model, kind, planned.run_id, 'headline', plan ->> '$.headline', detector
    FROM planned JOIN pair_answers AS answer ON answer.benchmark = planned.benchmark AND answer.model = planned.model
        AND answer.run_id IN (planned.run_id, 'answer-' || planned.run_id)
    WHERE kind = 'detectors' AND (plan ->> '$.headline' IS NOT NULL OR detector_chosen = 'named')
)
SELECT DISTINCT * FROM compared WHERE planned IS DISTINCT FROM found
ORDER BY benchmark, model, kind, run_id, item;

COMMENT ON VIEW plan_deviations IS
    'differences between the current results and the plan in force, one row per difference; empty without a plan';
COMMENT ON COLUMN plan_deviations.benchmark IS 'benchmark';
COMMENT ON COLUMN plan_deviations.model IS 'model';
COMMENT ON COLUMN plan_deviations.kind IS 'search | detectors: kind of the results';
COMMENT ON COLUMN plan_deviations.run_id IS 'run of the results; joins to lineage.run_id';
COMMENT ON COLUMN plan_deviations.item IS 'subject of the difference';
COMMENT ON COLUMN plan_deviations.planned IS 'value in the plan; null: not in the plan';
COMMENT ON COLUMN plan_deviations.found IS 'value in the ledger entry of the run; null: missing or not done';
