-- Columns without a comment are those of: leaderboard_history, pair_answers, configured_models
CREATE VIEW series_findings AS
WITH recited AS (
    SELECT model, benchmark, count(*) AS documents, count(*) FILTER (claim = 'reproduced') AS reproduced
    FROM current_document_memorisation WHERE side = 'audited' AND windows > 0 GROUP BY ALL
), audited AS (
    SELECT model, benchmark FROM current_pair_answers UNION SELECT model, benchmark FROM recited
)
SELECT checkpoints.series, checkpoints.position, checkpoints.step, checkpoints.tokens, audited.model, audited.benchmark,
    board.detector, board.parameters, board.auroc, board.auroc_low, board.auroc_high, answers.sign,
    answers.tested, answers.standing_out, recited.documents, recited.reproduced
FROM audited JOIN configured_models AS checkpoints ON checkpoints.name = audited.model AND checkpoints.series IS NOT NULL
LEFT JOIN leaderboard AS board
    ON board.model = audited.model AND board.benchmark = audited.benchmark AND board.is_headline
LEFT JOIN current_pair_answers AS answers
    ON answers.model = audited.model AND answers.benchmark = audited.benchmark
LEFT JOIN recited ON recited.model = audited.model AND recited.benchmark = audited.benchmark
ORDER BY checkpoints.series, audited.benchmark, checkpoints.position;

COMMENT ON VIEW series_findings IS
    'checkpoints of every series in order: AUROC of the headline detector, documents that stand out, and documents that are reproduced word for word';
COMMENT ON COLUMN series_findings.model IS 'checkpoint: series@checkpoint';
COMMENT ON COLUMN series_findings.documents IS 'number of audited documents that were searched for passages';
COMMENT ON COLUMN series_findings.reproduced IS
    'number of searched documents with a passage that the model reproduces word for word';
