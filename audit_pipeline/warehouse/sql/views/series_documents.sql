-- Columns without a comment are those of: configured_models, evaluations
CREATE VIEW series_documents AS
WITH looked_at AS (
    SELECT model, benchmark, document_id AS document, 'word for word' AS found_by, claim = 'reproduced' AS is_found
    FROM current_document_memorisation WHERE side = 'audited' AND windows > 0
    UNION ALL
    SELECT tests.model, tests.benchmark, tests."group", 'scores', tests.q_bh <= 0.05
    FROM current_group_tests AS tests JOIN current_pair_answers AS answers
        USING (model, benchmark, detector, parameters)
    WHERE tests.label IS DISTINCT FROM 0
), in_order AS (
    SELECT looked_at.*, checkpoints.series, checkpoints.position, checkpoints.step,
        lead({'model': looked_at.model, 'step': checkpoints.step}) OVER following AS next
    FROM looked_at JOIN configured_models AS checkpoints
        ON checkpoints.name = looked_at.model AND checkpoints.series IS NOT NULL
    WINDOW following AS (
        PARTITION BY checkpoints.series, looked_at.benchmark, looked_at.document, looked_at.found_by
        ORDER BY checkpoints.position
    )
), since_first AS (
    SELECT *, min(position) FILTER (is_found) OVER (PARTITION BY series, benchmark, document, found_by) AS first_position
    FROM in_order
)
SELECT series, benchmark, document, found_by, count(*) AS checkpoints,
    count(*) FILTER (position >= first_position) AS since_first, count(*) FILTER (is_found) AS found_at,
    arg_min(model, position) FILTER (is_found) AS first_model, arg_min(step, position) FILTER (is_found) AS first_step,
    (arg_max({'next': next}, position) FILTER (is_found)).next.model AS lost_model,
    (arg_max({'next': next}, position) FILTER (is_found)).next.step AS lost_step
FROM since_first WHERE first_position IS NOT NULL
GROUP BY series, benchmark, document, found_by
ORDER BY series, benchmark, found_by, min(first_position), document;

COMMENT ON VIEW series_documents IS
    'documents that are found at any checkpoint of a series, with the first and the last of these checkpoints';
COMMENT ON COLUMN series_documents.document IS 'document, or group of texts';
COMMENT ON COLUMN series_documents.found_by IS
    'scores (q_bh at most 0.05 by the headline detector) | word for word (a reproduced passage)';
COMMENT ON COLUMN series_documents.checkpoints IS 'number of checkpoints that were audited for the document';
COMMENT ON COLUMN series_documents.since_first IS 'number of checkpoints from the first finding on';
COMMENT ON COLUMN series_documents.found_at IS 'number of checkpoints at which the document is found';
COMMENT ON COLUMN series_documents.first_model IS 'first checkpoint at which the document is found';
COMMENT ON COLUMN series_documents.first_step IS 'training step of first_model';
COMMENT ON COLUMN series_documents.lost_model IS
    'checkpoint after the last finding; null: the document is found at the last checkpoint';
COMMENT ON COLUMN series_documents.lost_step IS 'training step of lost_model';
