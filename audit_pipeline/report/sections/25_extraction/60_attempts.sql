-- Every run of the model on these texts (view attempts), the latest first.
SELECT tries.* EXCLUDE (settings_used, sealed_at), count(*) OVER (PARTITION BY tries.model, tries.benchmark) AS in_all
FROM tries SEMI JOIN all_extraction_pairs USING (model, benchmark)
QUALIFY row_number() OVER (PARTITION BY tries.model, tries.benchmark ORDER BY started_at DESC, kind, run_id) <= 40
ORDER BY tries.benchmark, started_at DESC, kind, run_id;
