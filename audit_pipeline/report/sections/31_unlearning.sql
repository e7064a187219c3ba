-- Texts that the model of the page was made to forget, before and after (view current_unlearning). One row per comparison,
-- the latest first.
--
-- outcome: outcome of the comparison
-- headline: outcome in one sentence
-- explanation: basis and limits of the outcome, a sentence or more each
-- retrained: model that was trained without these texts; null: none was named
-- numbers: every metric of the models before, after and retrained, and its change from before to after
-- forget: value on the texts to be forgotten
-- held_out: value on the held-out texts
-- both: value of one side against the other
-- n: number of texts, groups or documents of the value
-- unknown: metrics without a value, and the reason
-- is_current: true if the benchmarks and models are those of the comparison, as far as known
-- lineage: number of the ledger entry in this report
WITH mine AS (
    SELECT current.*, struct_insert(estimate(value, ci_low, ci_high, method), n := n) AS measured
    FROM current_unlearning AS current, page
    WHERE current.model = page.model
), comparisons AS (
    SELECT model, benchmark, before, holdout, retrained, run_id,
        list({
            'metric': metric, 'role': role, 'side': side, 'value': finite(value), 'ci_low': finite(ci_low),
            'ci_high': finite(ci_high), 'n': n, 'method': method, 'reason': reason,
            'documents': documents
        }) AS compared
    FROM mine GROUP BY model, benchmark, before, holdout, retrained, run_id
), sides AS (
    SELECT run_id, metric, role, any_value(measured) FILTER (side = 'forget') AS forget,
        any_value(measured) FILTER (side = 'holdout') AS held_out, any_value(measured) FILTER (side = 'both') AS "both"
    FROM mine WHERE value IS NOT NULL GROUP BY ALL
), numbered AS (
    SELECT run_id, list({
        'metric': metric, 'role': role, 'forget': forget, 'held_out': held_out, 'both': "both"
    } ORDER BY metric_place(metric), metric, list_position(['before', 'after', 'retrained', 'change'], role)) AS numbers
    FROM sides GROUP BY run_id
), lacking AS (
    SELECT run_id, list({'metric': metric, 'reason': reason} ORDER BY metric, reason) AS unknown
    FROM (SELECT DISTINCT run_id, metric, reason FROM mine WHERE value IS NULL) GROUP BY run_id
), statistics AS (
    -- The weights and the settings with which each model last read the texts.
    SELECT "partition", split_part("partition", '|', 2) AS model, max(finished_at) AS read_at,
        max_by(data_version, finished_at) AS version, max_by(model_fingerprint, finished_at) AS fingerprint
    FROM lineage WHERE "table" = 'token_statistics' GROUP BY ALL
), newest AS (
    SELECT "partition", version, fingerprint = max_by(fingerprint, read_at) OVER (PARTITION BY model) AS has_weights
    FROM statistics
), outdated AS (
    SELECT DISTINCT edge.run_id FROM lineage_edges AS edge
    LEFT JOIN benchmarks ON edge.upstream_table = 'examples' AND benchmarks.benchmark = edge.upstream_partition
    LEFT JOIN newest ON edge.upstream_table = 'token_statistics' AND newest."partition" = edge.upstream_partition
    WHERE edge."table" = 'unlearning' AND (
        benchmarks.digest <> edge.upstream_version OR newest.version <> edge.upstream_version OR NOT newest.has_weights
    )
)
SELECT comparisons.before, comparisons.model, comparisons.benchmark, comparisons.holdout, comparisons.retrained,
    coalesce(numbers, []) AS numbers,
    coalesce(unknown, []) AS unknown, comparisons.run_id NOT IN (FROM outdated) AS is_current,
    entries.number AS lineage, count(*) OVER () AS in_all, comparisons.compared AS raw_compared
FROM comparisons LEFT JOIN numbered USING (run_id) LEFT JOIN lacking USING (run_id)
LEFT JOIN entries ON entries."table" = 'unlearning'
    AND entries."partition" = comparisons.benchmark || '|' || comparisons.model AND entries.run_id = comparisons.run_id
ORDER BY entries.number NULLS LAST, comparisons.benchmark, comparisons.holdout, comparisons.before,
    comparisons.retrained
LIMIT 20;
