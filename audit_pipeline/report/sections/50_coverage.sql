-- The status of every requested pair (view coverage). One row.
--
-- config_is_known: true if the configuration listed models and benchmarks when the warehouse was built
-- only_given: true if every benchmark is a table of external scores, which no configuration lists
-- counts: number of pairs per status, worst first
-- meaning: meaning of the status
-- grid_benchmarks: benchmarks of the grid; empty: the grid would be too large
-- grid: status of a model on every benchmark of the grid; null: the pair was not requested
-- not_done: pairs that are not done, worst first
-- more: number of such pairs that are not listed
WITH mine AS (
    -- Pairs that nobody requested, or that have nothing to audit, are omitted unless a run tried them.
    FROM covered SEMI JOIN page_models USING (model)
    WHERE NOT (status IN ('not_requested', 'not_applicable') AND run_id IS NULL)
), counted AS (
    SELECT status, count(*) AS pairs FROM mine GROUP BY ALL
), named AS (
    SELECT coalesce(list(DISTINCT model ORDER BY model), []) AS models,
        coalesce(list(DISTINCT benchmark ORDER BY benchmark), []) AS benchmarks
    FROM mine
), sized AS (
    SELECT *, len(models) <= 60 AND len(benchmarks) <= 30 AS is_small FROM named
), gridded AS (
    SELECT asked.model, list(mine.status ORDER BY asked.benchmark) AS statuses
    FROM (
        SELECT model, unnest(benchmarks) AS benchmark FROM (
            SELECT benchmarks, unnest(models) AS model FROM sized WHERE is_small
        )
    ) AS asked LEFT JOIN mine USING (model, benchmark)
    GROUP BY asked.model
), undone AS (
    SELECT * REPLACE (cut(reason, 600) AS reason), row_number() OVER (
        ORDER BY status_place(status), model, benchmark
    ) AS place
    FROM mine WHERE status <> 'done'
), listed_counts AS (
    SELECT coalesce(list({'status': status, 'pairs': pairs} ORDER BY status_place(status), status), []) AS counts
    FROM counted
), listed_grid AS (
    SELECT coalesce(list({'model': model, 'statuses': statuses} ORDER BY model), []) AS grid FROM gridded
), listed_undone AS (
    SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'status': status, 'reason': reason, 'stage': stage,
        'last_audited_at': last_audited_at, 'outcome_at': outcome_at, 'run_id': run_id, 'is_configured': is_configured
    } ORDER BY place) FILTER (place <= 100), []) AS not_done, greatest(0, count(*) - 100) AS more
    FROM undone
)
SELECT (SELECT count(*) FROM mine) AS pairs, len(models) AS models, len(benchmarks) AS benchmarks,
    EXISTS (FROM configured_models) AND EXISTS (FROM configured_benchmarks) AS config_is_known,
    len(benchmarks) > 0 AND list_has_all(
        (SELECT coalesce(list(benchmark), []) FROM handed_over), benchmarks
    ) AS only_given,
    listed_counts.counts, CASE WHEN is_small THEN benchmarks ELSE [] END AS grid_benchmarks, listed_grid.grid,
    listed_undone.not_done, listed_undone.more
FROM sized, listed_counts, listed_grid, listed_undone;
