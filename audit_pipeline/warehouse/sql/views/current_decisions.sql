CREATE VIEW current_decisions AS
SELECT every.* FROM decisions AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'decisions') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_decisions IS
    'the thresholds of the latest run of every model on every benchmark, and what they achieved';
