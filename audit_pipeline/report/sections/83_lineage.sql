-- What wrote the rows behind the numbers of the page (table lineage), from what, with which code and versions.
--
-- number: the number by which the page names the entry
-- inputs: data versions of what it was made from
-- environment: number of the environment, in the manifest, that it ran in
SELECT number, "table", "partition", run_id, asset_key, code_version, data_version, model_fingerprint,
    tokenizer_fingerprint, benchmark_digest, started_at, finished_at,
    environment, in_all, upstream_data_versions AS raw_upstream_data_versions
FROM page_lineage ORDER BY number;
