-- The ledger entries behind the numbers of the page (table lineage): step, inputs, code and versions.
--
-- number: number of the entry on the page
-- inputs: data versions of the inputs
-- environment: number of the entry's environment in the manifest
SELECT number, "table", "partition", run_id, asset_key, code_version, data_version, model_fingerprint,
    tokenizer_fingerprint, benchmark_digest, started_at, finished_at,
    environment, in_all, upstream_data_versions AS raw_upstream_data_versions
FROM page_lineage ORDER BY number;
