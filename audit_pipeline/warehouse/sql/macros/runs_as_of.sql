CREATE MACRO runs_as_of(moment) AS TABLE
SELECT * FROM runs WHERE model IS NOT NULL AND finished_at <= CAST(moment AS TIMESTAMPTZ)
QUALIFY row_number() OVER (PARTITION BY "table", "partition" ORDER BY finished_at DESC, run_id DESC) = 1;

COMMENT ON MACRO TABLE runs_as_of IS
    'latest run of every table, model and benchmark at a moment (a date is its first moment, UTC)';
