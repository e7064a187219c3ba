CREATE VIEW lineage_gaps AS
SELECT "table", "partition", run_id, rows, lineage_rows,
    CASE WHEN lineage_rows = 0 THEN 'rows without an entry' ELSE 'rows with several entries' END AS what
FROM runs WHERE lineage_rows <> 1
UNION ALL
SELECT "table", "partition", run_id, 0, 1,
    CASE WHEN left_out IS NOT NULL THEN 'a damaged file: its rows are left out'
        WHEN run_went_on THEN 'an entry without its file: the file was deleted'
        ELSE 'an entry without its file: the run died before it was written, or the file was deleted' END
FROM files_gone
ORDER BY "table", "partition", run_id;

COMMENT ON VIEW lineage_gaps IS
    'where rows do not join to exactly one lineage entry, or an entry has no file or a damaged one; empty where all is well';
COMMENT ON COLUMN lineage_gaps.rows IS 'how many rows';
COMMENT ON COLUMN lineage_gaps.lineage_rows IS 'how many entries they join to';
COMMENT ON COLUMN lineage_gaps.what IS 'what is there without the other, and what that can mean';
