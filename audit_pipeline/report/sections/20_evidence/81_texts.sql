-- The highest scores, with at most 50 words of the text, or with its tokens if the latest evaluation stored token scores.
--
-- place: rank by the score
-- n_tokens: number of tokens of the text
-- tokens: tokens of the quotation; empty: no stored token scores
-- counted: true if the score of the text averages over the token
-- text: quotation, if token scores were not stored
WITH quoted AS (
    SELECT pairs.* FROM all_evidence_pairs AS pairs, page WHERE pairs.is_current AND page.includes_text
), highest AS (
    SELECT lit.* FROM current_highlights AS lit SEMI JOIN quoted USING (model, benchmark)
    QUALIFY row_number() OVER (
        PARTITION BY lit.model, lit.benchmark ORDER BY lit.detector, lit.parameters, lit.place
    ) <= 10
), lit AS (
    SELECT model, benchmark, detector, parameters, place, example_id, score, n_tokens, [{
        'text': pieces[i], 'score': printf('%.4g', finite(token_scores[i]))::DOUBLE, 'counted': counted[i]
    } FOR i IN range(1, len(pieces) + 1)] AS tokens, NULL AS text
    FROM highest WHERE isfinite(score) AND list_bool_or([piece <> '' FOR piece IN pieces])
), scored AS (
    SELECT scored.*, row_number() OVER (
        PARTITION BY scored.model, scored.benchmark ORDER BY scored.score DESC, scored.example_id
    ) AS place
    FROM all_evidence_scores AS scored SEMI JOIN quoted
        ON quoted.model = scored.model AND quoted.benchmark = scored.benchmark
        AND quoted.detector = scored.detector AND quoted.parameters = scored.parameters
    ANTI JOIN lit ON lit.model = scored.model AND lit.benchmark = scored.benchmark
    WHERE scored.status = 'ok' AND scored.split IS DISTINCT FROM 'calibration'
    QUALIFY place <= 10
), shown AS (
    FROM lit
    UNION ALL
    SELECT scored.model, scored.benchmark, scored.detector, scored.parameters, scored.place, scored.example_id,
        scored.score, NULL, [], examples.excerpt
    FROM scored JOIN examples USING (benchmark, example_id)
    WHERE isfinite(scored.score) AND examples.excerpt <> ''
)
SELECT shown.model, shown.benchmark, shown.detector, shown.parameters, shown.place, shown.example_id, shown.score,
    examples.label, examples.published, examples."group", examples.collection, examples.language, shown.n_tokens,
    shown.tokens, shown.text
FROM shown LEFT JOIN examples USING (benchmark, example_id)
ORDER BY shown.detector, shown.parameters, shown.place;
