-- Columns without a comment are those of: leaderboard_history
CREATE VIEW older_model_control AS
WITH texts AS (
    -- The earliest day on which any text behind the AUROC can have existed, or null if a text has no date. The AUROC of a
    -- shelf also uses its held-out texts, which are in the calibration split.
    SELECT examples.benchmark,
        CASE WHEN count(*) = count(examples.published)
            THEN min(least(examples.published, documents.earliest)) END AS first_text
    FROM examples LEFT JOIN documents ON documents.document_id = examples.document_id
    WHERE examples.split = 'evaluation' OR examples.label = 0 GROUP BY ALL
), older AS (
    SELECT board.*, released.release_date, texts.first_text
    FROM leaderboard AS board JOIN model_releases AS released ON released.model = board.model
    JOIN texts ON texts.benchmark = board.benchmark
    -- Scores of an earlier build may belong to older texts, which the older model could have read.
    WHERE released.release_date < texts.first_text AND board.is_current
)
SELECT board.benchmark, board.detector, board.parameters, board.model, board.auroc, board.auroc_low, board.auroc_high,
    older.model AS older_model, older.release_date AS older_release_date, older.first_text,
    older.auroc AS older_auroc, older.auroc_low AS older_auroc_low, older.auroc_high AS older_auroc_high,
    board.auroc - older.auroc AS above_older, board.blind_auroc, board.split_verdict, board.claim_level, board.run_id
FROM older JOIN leaderboard AS board
    ON board.benchmark = older.benchmark AND board.detector = older.detector AND board.parameters = older.parameters
    AND board.model <> older.model AND board.is_current
ORDER BY board.benchmark, board.detector, board.parameters, board.model, older.release_date DESC, older.model;

COMMENT ON VIEW older_model_control IS
    'every finding with the AUROC of a model that was released before the texts existed, which shows the shift that a language model detects; omitted: findings without such a model, of an earlier build or of a control';
COMMENT ON COLUMN older_model_control.older_model IS
    'model that was released before the earliest evaluation text existed, so that it cannot have read these texts';
COMMENT ON COLUMN older_model_control.older_release_date IS 'release date of the older model';
COMMENT ON COLUMN older_model_control.first_text IS
    'earliest day on which any of the evaluation texts can have existed';
COMMENT ON COLUMN older_model_control.older_auroc IS
    'AUROC of the older model with the same detector: the effect of the difference between the two sides without training';
COMMENT ON COLUMN older_model_control.above_older IS 'AUROC minus the AUROC of the older model, without an interval';
