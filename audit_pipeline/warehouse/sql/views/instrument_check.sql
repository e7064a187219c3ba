-- Columns without a comment are those of: leaderboard_history
CREATE VIEW instrument_check AS
SELECT controls.control, leaderboard.benchmark, leaderboard.detector, leaderboard.parameters,
    max(auroc) FILTER (role = 'exposed') AS exposed_auroc,
    max(auroc_low) FILTER (role = 'exposed') AS exposed_low,
    max(auroc_high) FILTER (role = 'exposed') AS exposed_high,
    max(auroc) FILTER (role = 'twin') AS twin_auroc,
    max(auroc_low) FILTER (role = 'twin') AS twin_low,
    max(auroc_high) FILTER (role = 'twin') AS twin_high,
    max(blind_auroc) AS blind_auroc, max(blind_auroc_low) AS blind_low, max(blind_auroc_high) AS blind_high
FROM leaderboard_history AS leaderboard JOIN control_models AS controls ON controls.model = leaderboard.model
WHERE leaderboard.is_latest
GROUP BY ALL HAVING max(auroc) IS NOT NULL
ORDER BY controls.control, leaderboard.benchmark, exposed_auroc DESC NULLS LAST, leaderboard.detector;

COMMENT ON VIEW instrument_check IS
    'AUROC of every detector on the exposed model and on the control model of a control; detectors without an AUROC are omitted';
COMMENT ON COLUMN instrument_check.control IS 'control in config/controls.yaml';
COMMENT ON COLUMN instrument_check.exposed_auroc IS
    'AUROC of members against held-out texts by the model that was trained on the members';
COMMENT ON COLUMN instrument_check.twin_auroc IS
    'AUROC of members against held-out texts by the control model, which was trained on neither side: 0.5 except for chance';
COMMENT ON COLUMN instrument_check.blind_auroc IS
    'AUROC of the blind control, which uses no model: 0.5 except for chance';
