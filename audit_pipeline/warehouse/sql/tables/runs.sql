-- Filled by fills/runs.sql from every table whose rows name their run, and from lineage.
-- Key, checked by every build (table keys): "table", "partition", run_id

CREATE TABLE runs (
    "table" VARCHAR NOT NULL,
    "partition" VARCHAR NOT NULL,
    benchmark VARCHAR,
    model VARCHAR,
    run_id VARCHAR NOT NULL,
    rows BIGINT NOT NULL,
    lineage_rows BIGINT NOT NULL,
    asset_key VARCHAR,
    code_version VARCHAR,
    data_version VARCHAR,
    benchmark_digest VARCHAR,
    model_fingerprint VARCHAR,
    tokenizer_fingerprint VARCHAR,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    is_current BOOLEAN NOT NULL
);

COMMENT ON TABLE runs IS
    'what every run wrote: one row a table, partition and run, with what the lineage says of it';
COMMENT ON COLUMN runs."table" IS 'the table that the run wrote to';
COMMENT ON COLUMN runs."partition" IS 'the partition: a source, a benchmark, a study, or benchmark|model';
COMMENT ON COLUMN runs.benchmark IS 'the benchmark; null where the partition is none and of none';
COMMENT ON COLUMN runs.model IS 'the model; null where the partition is of none';
COMMENT ON COLUMN runs.run_id IS 'the run';
COMMENT ON COLUMN runs.rows IS
    'how many rows it wrote; 0 where its file holds none, so that earlier rows are not current';
COMMENT ON COLUMN runs.lineage_rows IS 'how many lineage entries explain them; 1 as it should be';
COMMENT ON COLUMN runs.asset_key IS 'the Dagster asset';
COMMENT ON COLUMN runs.code_version IS 'the asset''s code version';
COMMENT ON COLUMN runs.data_version IS 'digest of what was written';
COMMENT ON COLUMN runs.benchmark_digest IS 'config entry and sources of the benchmark';
COMMENT ON COLUMN runs.model_fingerprint IS 'weights, config, dtype and attention back end';
COMMENT ON COLUMN runs.tokenizer_fingerprint IS 'the tokenizer''s files';
COMMENT ON COLUMN runs.started_at IS 'when the step started; null without a lineage entry';
COMMENT ON COLUMN runs.finished_at IS 'when the rows were ready to be moved into place; null without a lineage entry';
COMMENT ON COLUMN runs.is_current IS
    'whether it is the latest of its table and partition; runs without a lineage entry come before all others';
