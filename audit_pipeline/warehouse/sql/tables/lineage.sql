-- Key, checked by every build (table keys): "table", "partition", run_id

CREATE TABLE lineage (
    "table" VARCHAR NOT NULL,
    "partition" VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    asset_key VARCHAR NOT NULL,
    code_version VARCHAR NOT NULL,
    data_version VARCHAR NOT NULL,
    upstream_data_versions VARCHAR NOT NULL,
    model_fingerprint VARCHAR,
    tokenizer_fingerprint VARCHAR,
    benchmark_digest VARCHAR,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    package_versions VARCHAR NOT NULL,
    settings VARCHAR,
    file_sha256 VARCHAR,
    row_sha256 VARCHAR
);

COMMENT ON TABLE lineage IS
    'which run wrote which rows from what, with which code and versions';
COMMENT ON COLUMN lineage."table" IS 'the table whose rows the entry explains';
COMMENT ON COLUMN lineage."partition" IS 'the partition: a source, a benchmark, or benchmark|model';
COMMENT ON COLUMN lineage.run_id IS 'the run that wrote the rows';
COMMENT ON COLUMN lineage.asset_key IS 'the Dagster asset';
COMMENT ON COLUMN lineage.code_version IS 'the asset''s code version';
COMMENT ON COLUMN lineage.data_version IS 'digest of what was written';
COMMENT ON COLUMN lineage.upstream_data_versions IS 'canonical JSON: upstream table/partition -> data version';
COMMENT ON COLUMN lineage.model_fingerprint IS 'weights, config, dtype and attention back end';
COMMENT ON COLUMN lineage.tokenizer_fingerprint IS 'the tokenizer''s files';
COMMENT ON COLUMN lineage.benchmark_digest IS 'config entry and sources of the benchmark';
COMMENT ON COLUMN lineage.started_at IS 'when the step started';
COMMENT ON COLUMN lineage.finished_at IS 'when the rows were ready to be moved into place';
COMMENT ON COLUMN lineage.package_versions IS 'canonical JSON: package -> version';
COMMENT ON COLUMN lineage.settings IS
    'canonical JSON of the options that the command was given, as in the scores of evaluate; null: not kept';
COMMENT ON COLUMN lineage.file_sha256 IS
    'sha256 of the Parquet file that holds the rows; null: they lie in no file of their own, or an earlier version wrote them';
COMMENT ON COLUMN lineage.row_sha256 IS
    'sha256 of the row''s other columns (catalogue/integrity.py); null where an earlier version wrote the row';
