-- written_files and rows_by_run are of the build alone: the files of the append-only tables that it could read, and how
-- many rows every run wrote to each table.
DELETE FROM runs;

INSERT INTO runs BY NAME
WITH found AS MATERIALIZED (FROM rows_by_run), written AS (
    FROM found
    UNION ALL
    SELECT file."table", file."partition", split_part(file."partition", '|', 1), split_part(file."partition", '|', 2),
        file.run_id, 0
    FROM written_files AS file ANTI JOIN found
        ON found."table" = file."table" AND found.run_id = file.run_id AND found."partition" = file."partition"
), entries AS (
    SELECT "table", "partition", run_id, count(*) AS lineage_rows, max_by(asset_key, finished_at) AS asset_key,
        max_by(code_version, finished_at) AS code_version, max_by(data_version, finished_at) AS data_version,
        max_by(benchmark_digest, finished_at) AS benchmark_digest,
        max_by(model_fingerprint, finished_at) AS model_fingerprint,
        max_by(tokenizer_fingerprint, finished_at) AS tokenizer_fingerprint,
        min(started_at) AS started_at, max(finished_at) AS finished_at
    FROM lineage GROUP BY ALL
)
SELECT written.*, entries.* EXCLUDE ("table", "partition", run_id, lineage_rows),
    coalesce(entries.lineage_rows, 0) AS lineage_rows,
    written.model IS NULL OR row_number() OVER (
        PARTITION BY written."table", written."partition"
        ORDER BY entries.finished_at DESC NULLS LAST, written.run_id DESC
    ) = 1 AS is_current
FROM written LEFT JOIN entries
    ON entries."table" = written."table" AND entries."partition" = written."partition"
    AND entries.run_id = written.run_id
ORDER BY written."table", written."partition", entries.finished_at, written.run_id;
