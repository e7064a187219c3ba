-- What became of every pair that was asked for (view coverage). One row.
--
-- config_is_known: whether the configuration named models and benchmarks when the warehouse was built
-- only_given: whether every benchmark is a table of scores that was handed over: no configuration names such a one
-- counts: how many pairs have a status, worst first
-- meaning: what the status means
-- grid_benchmarks: the benchmarks of the grid; empty where it would be too large to read
-- grid: a model's status on every benchmark of the grid; null where it is neither to be audited nor was asked for
-- not_done: the pairs that are not done, worst first
-- more: pairs not done that are not listed
WITH mine AS (
    -- Neither what nobody asked for nor what has nothing to audit, unless a run tried.
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
)
SELECT (SELECT count(*) FROM mine) AS pairs, len(models) AS models, len(benchmarks) AS benchmarks,
    EXISTS (FROM configured_models) AND EXISTS (FROM configured_benchmarks) AS config_is_known,
    len(benchmarks) > 0 AND list_has_all(
        (SELECT coalesce(list(benchmark), []) FROM handed_over), benchmarks
    ) AS only_given,
    (SELECT coalesce(list({
        'status': status, 'pairs': pairs
    } ORDER BY status_place(status), status), []) FROM counted) AS counts,
    CASE WHEN is_small THEN benchmarks ELSE [] END AS grid_benchmarks,
    (SELECT coalesce(list({'model': model, 'statuses': statuses} ORDER BY model), []) FROM gridded) AS grid,
    (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'status': status, 'reason': reason, 'stage': stage,
        'last_audited_at': last_audited_at, 'outcome_at': outcome_at, 'run_id': run_id, 'is_configured': is_configured
    } ORDER BY place), []) FROM undone WHERE place <= 100) AS not_done,
    (SELECT greatest(0, count(*) - 100) FROM undone) AS more
FROM sized;
