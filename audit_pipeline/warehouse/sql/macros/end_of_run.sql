CREATE MACRO end_of_run(run) AS (
    SELECT max(finished_at) FROM lineage WHERE run_id = run
);

COMMENT ON MACRO end_of_run IS
    'time of a run''s last rows: leaderboard_as_of(end_of_run(''…'')) is the leaderboard at that time';
