-- If moment is NULL, findings are compared with the previous run.
CREATE MACRO changes_since(moment) AS TABLE
WITH audits AS (
    SELECT * FROM runs WHERE "table" = 'evaluations'
), latest AS (
    SELECT * FROM audits WHERE is_current AND (moment IS NULL OR finished_at > CAST(moment AS TIMESTAMPTZ))
), earlier AS (
    SELECT * FROM audits WHERE NOT is_current AND (moment IS NULL OR finished_at <= CAST(moment AS TIMESTAMPTZ))
    QUALIFY row_number() OVER (
        PARTITION BY "partition" ORDER BY finished_at DESC NULLS LAST, run_id DESC
    ) = 1
), read AS (
    SELECT edge."partition", edge.run_id,
        map_from_entries(list({k: edge.upstream_table || '/' || edge.upstream_partition, v: edge.upstream_version}))
            AS versions,
        max(scored.code_version) FILTER (edge.upstream_table = 'scores') AS scores_code
    FROM lineage_edges AS edge LEFT JOIN runs AS scored
        ON scored."table" = edge.upstream_table AND scored."partition" = edge.upstream_partition
        AND scored.run_id = edge.upstream_run_id
    WHERE edge."table" = 'evaluations' GROUP BY ALL
), packages AS (
    SELECT "partition", run_id, CAST(package_versions::JSON AS MAP(VARCHAR, VARCHAR)) AS versions
    FROM lineage WHERE "table" = 'evaluations'
    QUALIFY row_number() OVER (PARTITION BY "partition", run_id ORDER BY finished_at DESC) = 1
), pairs AS (
    SELECT latest.model, latest.benchmark, latest."partition",
        latest.run_id, latest.finished_at,
        earlier.run_id AS previous_run_id, earlier.finished_at AS previous_finished_at,
        latest.benchmark_digest IS DISTINCT FROM earlier.benchmark_digest AS benchmark_changed,
        latest.model_fingerprint IS DISTINCT FROM earlier.model_fingerprint
            OR latest.tokenizer_fingerprint IS DISTINCT FROM earlier.tokenizer_fingerprint AS model_changed,
        latest.code_version IS DISTINCT FROM earlier.code_version
            OR now_read.scores_code IS DISTINCT FROM then_read.scores_code AS code_changed,
        list_sort(list_filter(
            list_distinct(list_concat(map_keys(now_read.versions), map_keys(then_read.versions))),
            lambda name: now_read.versions[name] IS DISTINCT FROM then_read.versions[name]
        )) AS inputs_changed,
        list_sort(list_filter(
            list_distinct(list_concat(map_keys(now_installed.versions), map_keys(then_installed.versions))),
            lambda name: now_installed.versions[name] IS DISTINCT FROM then_installed.versions[name]
        )) AS packages_changed
    FROM latest LEFT JOIN earlier ON earlier."partition" = latest."partition"
    LEFT JOIN read AS now_read ON now_read."partition" = latest."partition" AND now_read.run_id = latest.run_id
    LEFT JOIN read AS then_read ON then_read."partition" = earlier."partition" AND then_read.run_id = earlier.run_id
    LEFT JOIN packages AS now_installed
        ON now_installed."partition" = latest."partition" AND now_installed.run_id = latest.run_id
    LEFT JOIN packages AS then_installed
        ON then_installed."partition" = earlier."partition" AND then_installed.run_id = earlier.run_id
), boards AS (
    SELECT pairs."partition", board.*
    FROM pairs JOIN leaderboard_history AS board
        ON board.model = pairs.model AND board.benchmark = pairs.benchmark
        AND board.run_id IN (pairs.run_id, pairs.previous_run_id)
), compared AS (
    SELECT coalesce(now_known."partition", then_known."partition") AS "partition",
        coalesce(now_known.detector, then_known.detector) AS detector,
        coalesce(now_known.parameters, then_known.parameters) AS parameters,
        CASE WHEN then_known.run_id IS NULL THEN 'new detector'
            WHEN now_known.run_id IS NULL THEN 'no longer there'
            WHEN now_known.auroc IS NOT DISTINCT FROM then_known.auroc
                AND now_known.claim_level = then_known.claim_level
                AND now_known.split_verdict = then_known.split_verdict THEN 'unchanged'
            ELSE 'changed' END AS change,
        now_known.auroc, now_known.auroc_low, now_known.auroc_high,
        then_known.auroc AS previous_auroc, then_known.auroc_low AS previous_auroc_low,
        then_known.auroc_high AS previous_auroc_high,
        now_known.auroc - then_known.auroc AS difference,
        now_known.auroc NOT BETWEEN then_known.auroc_low AND then_known.auroc_high AS left_interval,
        now_known.claim_level, then_known.claim_level AS previous_claim_level,
        now_known.split_verdict, then_known.split_verdict AS previous_split_verdict
    FROM (FROM boards SEMI JOIN latest USING ("partition", run_id)) AS now_known
    FULL JOIN (FROM boards ANTI JOIN latest USING ("partition", run_id)) AS then_known
        ON then_known."partition" = now_known."partition" AND then_known.detector = now_known.detector
        AND then_known.parameters = now_known.parameters
)
SELECT pairs.model, pairs.benchmark, compared.* EXCLUDE ("partition")
    REPLACE (if(previous_run_id IS NULL, 'first audit', change) AS change),
    run_id, finished_at, previous_run_id, previous_finished_at,
    if(previous_run_id IS NULL, NULL, benchmark_changed) AS benchmark_changed,
    if(previous_run_id IS NULL, NULL, model_changed) AS model_changed,
    if(previous_run_id IS NULL, NULL, code_changed) AS code_changed,
    if(previous_run_id IS NULL, NULL, inputs_changed) AS inputs_changed,
    if(previous_run_id IS NULL, NULL, packages_changed) AS packages_changed
FROM compared JOIN pairs ON pairs."partition" = compared."partition"
ORDER BY 1, 2, 3, 4;

COMMENT ON MACRO TABLE changes_since IS
    'findings of the pairs that were audited after a moment, now and at that moment; same columns as changes_since_last_audit';
