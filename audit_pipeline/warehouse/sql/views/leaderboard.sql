-- Columns without a comment are those of: leaderboard_history
CREATE VIEW leaderboard AS
SELECT * EXCLUDE (finished_at, is_latest, is_control) FROM leaderboard_history
WHERE is_latest AND NOT is_control
ORDER BY model, benchmark, is_headline DESC, auroc DESC NULLS LAST, detector, parameters;

COMMENT ON VIEW leaderboard IS
    'one row per audited model, benchmark and detector at its default parameters, the headline first, with the blind control; omitted: models of controls (see instrument_check, leaderboard_history), pairs without a label or held-out text, and searches for passages (coverage has every pair)';
