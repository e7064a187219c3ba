CREATE VIEW leaderboard AS
SELECT * EXCLUDE (finished_at, is_latest) FROM leaderboard_history
WHERE is_latest AND model NOT IN (SELECT model FROM control_models)
ORDER BY model, benchmark, auroc DESC NULLS LAST, detector, parameters;

COMMENT ON VIEW leaderboard IS
    'one row per audited model, benchmark and detector at its default parameters, the blind control beside it (controls: instrument_check)';
