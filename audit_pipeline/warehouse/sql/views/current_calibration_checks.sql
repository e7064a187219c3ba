CREATE VIEW current_calibration_checks AS
SELECT every.* FROM calibration_checks AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'calibration_checks') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_calibration_checks IS
    'the calibration checks of the latest run of every model on every benchmark';
