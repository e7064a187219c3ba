CREATE VIEW current_evaluations AS
SELECT every.* FROM evaluations AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'evaluations') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_evaluations IS
    'the metrics of the latest run of every model on every benchmark';
