CREATE MACRO group_tests_as_of(moment) AS TABLE
SELECT every.* FROM group_tests AS every
SEMI JOIN (SELECT * FROM runs_as_of(moment) WHERE "table" = 'group_tests') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON MACRO TABLE group_tests_as_of IS
    'what current_group_tests held at a moment (a date is its first moment, UTC)';
