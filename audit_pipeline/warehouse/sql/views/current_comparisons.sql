CREATE VIEW current_comparisons AS
SELECT every.* FROM comparisons AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'comparisons') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_comparisons IS
    'the comparisons of detectors by the latest run of every model on every benchmark';
