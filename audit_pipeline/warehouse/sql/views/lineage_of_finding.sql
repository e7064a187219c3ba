-- Columns without a comment are those of: evaluations, lineage
CREATE VIEW lineage_of_finding AS
WITH RECURSIVE chain AS (
    SELECT model, benchmark, run_id, is_current, 0 AS step,
        "table", "partition", data_version, run_id AS written_by
    FROM runs WHERE "table" = 'evaluations'
    UNION
    SELECT chain.model, chain.benchmark, chain.run_id, chain.is_current, chain.step + 1,
        edge.upstream_table, edge.upstream_partition, edge.upstream_version, edge.upstream_run_id
    FROM chain JOIN lineage_edges AS edge
        ON edge."table" = chain."table" AND edge."partition" = chain."partition" AND edge.run_id = chain.written_by
    -- No chain has 12 steps. The limit stops endless loops, in case lineage entries name each other.
    WHERE chain.step < 12
), links AS (
    -- Evaluation, scores and token statistics all read the examples. The view has one row for them, after all readers.
    SELECT model, benchmark, run_id, is_current, max(step) AS step, "table", "partition", data_version, written_by
    FROM chain GROUP BY ALL
), entries AS (
    SELECT * FROM lineage
    QUALIFY row_number() OVER (PARTITION BY "table", "partition", run_id ORDER BY finished_at DESC) = 1
)
SELECT links.*, entries.asset_key, entries.code_version, entries.model_fingerprint, entries.tokenizer_fingerprint,
    entries.benchmark_digest, entries.started_at, entries.finished_at, entries.package_versions,
    entries.upstream_data_versions
FROM links LEFT JOIN entries
    ON entries."table" = links."table" AND entries."partition" = links."partition" AND entries.run_id = links.written_by
ORDER BY links.model, links.benchmark, links.run_id, links.step, links."table", links."partition";

COMMENT ON VIEW lineage_of_finding IS
    'inputs of every finding, from the evaluation back to the documents, one row per input; joins to findings by model, benchmark, run_id';
COMMENT ON COLUMN lineage_of_finding.run_id IS 'run of the evaluation';
COMMENT ON COLUMN lineage_of_finding.is_current IS 'true if it is the latest run of this model on this benchmark';
COMMENT ON COLUMN lineage_of_finding.step IS
    'number of links from the evaluation to the input; 0 is the evaluation itself';
COMMENT ON COLUMN lineage_of_finding."table" IS 'table of the input, or its kind (reference_model, …)';
COMMENT ON COLUMN lineage_of_finding."partition" IS 'partition of the table, or name of the input';
COMMENT ON COLUMN lineage_of_finding.data_version IS 'version of the input';
COMMENT ON COLUMN lineage_of_finding.written_by IS
    'run that wrote the input; null: an external input without a ledger entry of this version';
