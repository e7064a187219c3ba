-- written_files is a temporary table of the build: the files of the append-only tables that it could read.
INSERT INTO runs BY NAME
WITH of_pairs AS (
    SELECT 'scores' AS "table", benchmark, model, run_id, sum(texts)::BIGINT AS rows FROM scored_settings GROUP BY ALL
    UNION ALL SELECT 'evaluations', benchmark, model, run_id, count(*) FROM evaluations GROUP BY ALL
    UNION ALL SELECT 'decisions', benchmark, model, run_id, count(*) FROM decisions GROUP BY ALL
    UNION ALL SELECT 'group_tests', benchmark, model, run_id, count(*) FROM group_tests GROUP BY ALL
    UNION ALL SELECT 'contamination_rates', benchmark, model, run_id, count(*) FROM contamination_rates GROUP BY ALL
    UNION ALL SELECT 'comparisons', benchmark, model, run_id, count(*) FROM comparisons GROUP BY ALL
    UNION ALL SELECT 'calibration_checks', benchmark, model, run_id, count(*) FROM calibration_checks GROUP BY ALL
    UNION ALL SELECT 'corpus_tests', benchmark, model, run_id, count(*) FROM corpus_tests GROUP BY ALL
    UNION ALL SELECT 'highlights', benchmark, model, run_id, count(*) FROM highlights GROUP BY ALL
), written AS (
    SELECT 'documents' AS "table", source AS "partition", NULL AS benchmark, NULL AS model, run_id, count(*) AS rows
    FROM documents GROUP BY ALL
    UNION ALL SELECT 'examples', benchmark, benchmark, NULL, run_id, count(*) FROM examples GROUP BY ALL
    UNION ALL SELECT 'split_quality', benchmark, benchmark, NULL, run_id, count(*) FROM split_quality GROUP BY ALL
    UNION ALL SELECT 'control_studies', study, NULL, NULL, run_id, count(*) FROM control_studies GROUP BY ALL
    UNION ALL SELECT "table", benchmark || '|' || model, benchmark, model, run_id, rows FROM of_pairs
    UNION ALL
    SELECT file."table", file."partition", split_part(file."partition", '|', 1), split_part(file."partition", '|', 2),
        file.run_id, 0
    FROM written_files AS file ANTI JOIN of_pairs
        ON of_pairs."table" = file."table" AND of_pairs.run_id = file.run_id
        AND of_pairs.benchmark || '|' || of_pairs.model = file."partition"
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
