-- The documents that were asked for (table chat_documents), audited and held-out documents in one list, the longest run
-- first. Each has the headline prompt style, or else the style with its longest run.
--
-- place: position in the list of its side
WITH one_each AS (
    SELECT documents.* FROM current_chat_documents AS documents SEMI JOIN chat_pairs USING (model, benchmark)
    QUALIFY row_number() OVER (
        PARTITION BY benchmark, document_id ORDER BY is_headline DESC, longest_run DESC NULLS LAST, rung
    ) = 1
), placed AS (
    SELECT *, row_number() OVER (
        PARTITION BY benchmark, side ORDER BY longest_run DESC NULLS LAST, coverage_mean DESC NULLS LAST, document_id
    ) AS place
    FROM one_each
)
SELECT model, benchmark, side, place, cut(document_id, 300) AS document_id, cut(title, 300) AS title, rung, is_headline,
    passages, requests, answered, words_in, words_out, longest_run, near_span, coverage_mean, near_verbatim,
    finite(score) AS score, passages_compared, n_held_out, finite(p_value) AS p_value, finite(q_bh) AS q_bh, claim,
    count(*) OVER (PARTITION BY benchmark) AS in_all
FROM placed QUALIFY place <= CASE side WHEN 'audited' THEN 100 ELSE 50 END
ORDER BY benchmark, longest_run DESC NULLS LAST, coverage_mean DESC NULLS LAST, side, document_id;
