INSERT INTO lineage_edges BY NAME
WITH named AS (
    SELECT "table", "partition", run_id, finished_at,
        unnest(map_entries(CAST(upstream_data_versions::JSON AS MAP(VARCHAR, VARCHAR)))) AS upstream
    FROM lineage
), split AS (
    SELECT "table", "partition", run_id, finished_at, upstream.value AS upstream_version,
        CASE WHEN contains(upstream.key, '/') THEN split_part(upstream.key, '/', 1) ELSE 'input' END AS upstream_table,
        CASE WHEN contains(upstream.key, '/') THEN substr(upstream.key, instr(upstream.key, '/') + 1)
            ELSE upstream.key END AS upstream_partition
    FROM named
)
SELECT split."table", split."partition", split.run_id, split.upstream_table, split.upstream_partition,
    split.upstream_version, entry.run_id AS upstream_run_id
FROM split ASOF LEFT JOIN lineage AS entry
    ON entry."table" = split.upstream_table AND entry."partition" = split.upstream_partition
    AND entry.data_version = split.upstream_version AND split.finished_at >= entry.finished_at;
