CREATE VIEW lineage_gaps AS
SELECT "table", "partition", run_id, rows, lineage_rows FROM runs
WHERE rows > 0 AND lineage_rows <> 1 ORDER BY "table", "partition", run_id;

COMMENT ON VIEW lineage_gaps IS
    'rows that do not join to exactly one lineage entry; empty where all is as it should be';
COMMENT ON COLUMN lineage_gaps.rows IS 'how many rows';
COMMENT ON COLUMN lineage_gaps.lineage_rows IS 'how many entries they join to';
