CREATE VIEW current_contamination_rates AS
SELECT every.* FROM contamination_rates AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'contamination_rates') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_contamination_rates IS
    'the contamination rates by the latest run of every model on every benchmark';
