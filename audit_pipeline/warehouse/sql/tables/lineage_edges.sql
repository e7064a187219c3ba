-- Filled from lineage by fills/lineage_edges.sql: a view of this would join as-of, which no recursive view may read.
-- Key, checked by every build (table keys): "table", "partition", run_id, upstream_table, upstream_partition

CREATE TABLE lineage_edges (
    "table" VARCHAR NOT NULL,
    "partition" VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    upstream_table VARCHAR NOT NULL,
    upstream_partition VARCHAR NOT NULL,
    upstream_version VARCHAR,
    upstream_run_id VARCHAR
);

COMMENT ON TABLE lineage_edges IS
    'what every run''s rows were made of: one row an input, with the run that had written it last before';
COMMENT ON COLUMN lineage_edges."table" IS 'the table whose rows the entry explains';
COMMENT ON COLUMN lineage_edges."partition" IS 'the partition: a source, a benchmark, or benchmark|model';
COMMENT ON COLUMN lineage_edges.run_id IS 'the run that wrote the rows';
COMMENT ON COLUMN lineage_edges.upstream_table IS
    'the table, or sort of input (reference_model, token_frequencies, …), that was read';
COMMENT ON COLUMN lineage_edges.upstream_partition IS 'its partition, or the input''s name';
COMMENT ON COLUMN lineage_edges.upstream_version IS 'its data version';
COMMENT ON COLUMN lineage_edges.upstream_run_id IS
    'the run that wrote it; null where no lineage entry names that version: an input from outside';
