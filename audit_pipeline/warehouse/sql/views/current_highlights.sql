CREATE VIEW current_highlights AS
SELECT every.* FROM highlights AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'highlights') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_highlights IS
    'the most suspicious texts by the latest run of every model on every benchmark';
