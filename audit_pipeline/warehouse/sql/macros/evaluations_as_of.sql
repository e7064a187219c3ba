CREATE MACRO evaluations_as_of(moment) AS TABLE
SELECT every.* FROM evaluations AS every
SEMI JOIN (SELECT * FROM runs_as_of(moment) WHERE "table" = 'evaluations') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON MACRO TABLE evaluations_as_of IS
    'what current_evaluations held at a moment (a date is its first moment, UTC)';
