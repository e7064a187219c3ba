-- loaded_files is a relation of the build: the entries of the loaded files.
INSERT INTO runs BY NAME
SELECT loaded.*, lineage.rows, lineage.asset_key, lineage.code_version, lineage.data_version, lineage.benchmark_digest,
    lineage.model_fingerprint, lineage.tokenizer_fingerprint, lineage.started_at, lineage.finished_at,
    loaded.model IS NULL OR row_number() OVER (
        PARTITION BY loaded."table", loaded."partition" ORDER BY lineage.finished_at DESC, loaded.run_id DESC
    ) = 1 AS is_current
FROM loaded_files AS loaded JOIN lineage
    ON lineage."table" = loaded."table" AND lineage."partition" = loaded."partition" AND lineage.run_id = loaded.run_id
ORDER BY loaded."table", loaded."partition", lineage.finished_at, loaded.run_id;
