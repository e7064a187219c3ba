CREATE VIEW current_scores AS
SELECT every.* FROM scores AS every
SEMI JOIN (SELECT * FROM current_runs WHERE "table" = 'scores') AS latest
    ON latest.benchmark = every.benchmark AND latest.model = every.model AND latest.run_id = every.run_id;

COMMENT ON VIEW current_scores IS
    'the scores of the latest run of every model on every benchmark';
