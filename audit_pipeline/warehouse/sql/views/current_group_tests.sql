CREATE VIEW current_group_tests AS
SELECT every.* FROM group_tests AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'group_tests') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_group_tests IS
    'the p- and q-values of groups by the latest run of every model on every benchmark';
