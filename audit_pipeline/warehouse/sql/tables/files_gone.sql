-- Filled by fills/files_gone.sql from what the build finds on disk.
-- Key, checked by every build (table keys): "table", "partition", run_id

CREATE TABLE files_gone (
    "table" VARCHAR NOT NULL,
    "partition" VARCHAR NOT NULL,
    run_id VARCHAR NOT NULL,
    run_went_on BOOLEAN NOT NULL,
    left_out VARCHAR
);

COMMENT ON TABLE files_gone IS
    'lineage entries whose file is not there, or was left out; of a partition that every run writes anew, the last entry alone';
COMMENT ON COLUMN files_gone."table" IS 'the table whose rows the entry explains';
COMMENT ON COLUMN files_gone."partition" IS 'the partition: a source, a benchmark, or benchmark|model';
COMMENT ON COLUMN files_gone.run_id IS 'the run that wrote the entry';
COMMENT ON COLUMN files_gone.run_went_on IS
    'whether the same step of the run wrote a later entry: its file was there then, and was deleted since';
COMMENT ON COLUMN files_gone.left_out IS
    'why the build left the file out, which is there: it is damaged, or cannot be read; null: it is not there';
