CREATE MACRO contamination_rates_as_of(moment) AS TABLE
SELECT every.* FROM contamination_rates AS every
SEMI JOIN (SELECT * FROM runs_as_of(moment) WHERE "table" = 'contamination_rates') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON MACRO TABLE contamination_rates_as_of IS
    'what current_contamination_rates held at a moment (a date is its first moment, UTC)';
