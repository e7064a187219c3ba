CREATE MACRO leaderboard_as_of(moment) AS TABLE
SELECT history.* EXCLUDE (is_control) FROM leaderboard_history AS history
SEMI JOIN (SELECT * FROM runs_as_of(moment) WHERE "table" = 'evaluations') AS latest
    ON latest.benchmark = history.benchmark AND latest.model = history.model AND latest.run_id = history.run_id
WHERE NOT is_control
ORDER BY model, benchmark, is_headline DESC, auroc DESC NULLS LAST, detector, parameters;

COMMENT ON MACRO TABLE leaderboard_as_of IS
    'the leaderboard at a moment (a date is its first moment, UTC); is_current refers to today';
