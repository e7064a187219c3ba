-- Columns without a comment are those of: evaluations, lineage
CREATE VIEW findings AS
SELECT evaluated.*, lineage.asset_key, lineage.code_version, lineage.data_version, lineage.upstream_data_versions,
    lineage.model_fingerprint, lineage.tokenizer_fingerprint, lineage.benchmark_digest, lineage.started_at,
    lineage.finished_at, lineage.package_versions
FROM current_evaluations AS evaluated LEFT JOIN lineage
    ON lineage."table" = 'evaluations' AND lineage.run_id = evaluated.run_id
    AND lineage."partition" = evaluated.benchmark || '|' || evaluated.model;

COMMENT ON VIEW findings IS 'current metrics with the ledger entry that explains them';
