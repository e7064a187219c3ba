-- Columns without a comment are those of: unlearning
CREATE VIEW current_unlearning AS
WITH dated AS (
    SELECT compared.*, runs.finished_at
    FROM unlearning AS compared LEFT JOIN runs
        ON runs."table" = 'unlearning' AND runs.run_id = compared.run_id
        AND runs.benchmark = compared.benchmark AND runs.model = compared.model
)
SELECT * EXCLUDE (finished_at) FROM dated
QUALIFY rank() OVER (
    PARTITION BY model, benchmark, before, holdout, retrained ORDER BY finished_at DESC NULLS LAST, run_id DESC
) = 1;

COMMENT ON VIEW current_unlearning IS
    'latest comparison of every pair of models on the texts that one of them was made to forget';
