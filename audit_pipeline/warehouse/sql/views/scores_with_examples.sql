-- Columns without a comment are those of: scores, examples
CREATE VIEW scores_with_examples AS
SELECT scored.*, examples.label, examples.split, examples.published, examples.language, examples.collection,
    examples."group", examples.words, examples.document_id, examples.excerpt,
    examples.scored_part
FROM current_scores AS scored LEFT JOIN examples
    ON examples.benchmark = scored.benchmark AND examples.example_id = scored.example_id;

COMMENT ON VIEW scores_with_examples IS 'current scores with the columns of their texts';
