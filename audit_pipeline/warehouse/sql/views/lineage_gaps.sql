-- Columns without a comment are those of: files_gone
CREATE VIEW lineage_gaps AS
SELECT "table", "partition", run_id, left_out IS NOT NULL AS is_left_out,
    CASE WHEN left_out IS NOT NULL THEN 'a damaged file: its rows are left out'
        WHEN run_went_on THEN 'an entry without its file: the file was deleted'
        ELSE 'an entry without its file: the run died before it was written, or the file was deleted' END AS what
FROM files_gone
ORDER BY "table", "partition", run_id;

COMMENT ON VIEW lineage_gaps IS 'ledger entries whose file is missing or corrupt; empty if all files are intact';
COMMENT ON COLUMN lineage_gaps.is_left_out IS 'true if the file exists, but the warehouse contains none of its rows';
COMMENT ON COLUMN lineage_gaps.what IS 'missing or damaged file, and its possible causes';
