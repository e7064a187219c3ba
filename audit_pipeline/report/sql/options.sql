-- The options with which the current scores were evaluated, per model and benchmark, if they were recorded.
SELECT current.model, current.benchmark, arg_max(lineage.settings, lineage.finished_at) AS settings
FROM current_runs AS current JOIN lineage
    ON lineage."table" = current."table" AND lineage.run_id = current.run_id
    AND lineage."partition" = current.benchmark || '|' || current.model
WHERE current."table" = 'scores' AND lineage.settings IS NOT NULL
GROUP BY ALL
