CREATE MACRO leaderboard_as_of(moment) AS TABLE
SELECT history.* FROM leaderboard_history AS history
SEMI JOIN (SELECT * FROM runs_as_of(moment) WHERE "table" = 'evaluations') AS latest
    ON latest.benchmark = history.benchmark AND latest.model = history.model AND latest.run_id = history.run_id;

COMMENT ON MACRO TABLE leaderboard_as_of IS
    'what the leaderboard held at a moment (a date is its first moment, UTC); is_current is of today';
