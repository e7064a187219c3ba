CREATE MACRO leaderboard_of_run(run) AS TABLE
SELECT * FROM leaderboard_history WHERE run_id = run;

COMMENT ON MACRO TABLE leaderboard_of_run IS
    'the findings that one run wrote, in the form of the leaderboard';
