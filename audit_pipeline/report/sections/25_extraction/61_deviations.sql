-- Differences between the current results and the plan in force (view plan_deviations).
SELECT differing.* EXCLUDE (run_id), count(*) OVER (PARTITION BY differing.model, differing.benchmark) AS in_all
FROM all_deviations AS differing SEMI JOIN all_extraction_pairs USING (model, benchmark)
QUALIFY row_number() OVER (PARTITION BY differing.model, differing.benchmark ORDER BY kind DESC, item, planned, found) <= 60
ORDER BY differing.benchmark, kind DESC, item, planned, found;
