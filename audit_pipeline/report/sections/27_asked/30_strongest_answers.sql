-- The answers with the longest runs of an audited document's words (table chat_answers), the strongest answer per passage.
--
-- place: rank by the longest run
-- original: first words of the document at the run; empty: no text is quoted or stored
-- given: first words of the answer at the run
-- text: run of words
-- is_common: true if the other side has these words, too
WITH strongest AS (
    SELECT requests.*, titles.title
    FROM chat_requests AS requests LEFT JOIN (
        SELECT model, benchmark, document_id, any_value(title) AS title FROM current_chat_documents GROUP BY ALL
    ) AS titles USING (model, benchmark, document_id)
    WHERE side = 'audited' AND outcome = 'answered' AND longest_run > 0
    QUALIFY row_number() OVER (
        PARTITION BY benchmark, document_id, passage ORDER BY longest_run DESC, request_sha256
    ) = 1
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY benchmark ORDER BY longest_run DESC, request_sha256) AS place
    FROM strongest QUALIFY place <= 5
)
SELECT placed.model, benchmark, place, cut(document_id, 300) AS document_id, cut(title, 300) AS title, passage, rung,
    draw, words_in, words_out, longest_run, near_span, run_start, run_end, cut(answered_by, 200) AS answered_by,
    asked_at, cut(finish_reason, 100) AS finish_reason, cut(provider_request_id, 200) AS provider_request_id,
    CASE WHEN page.includes_text THEN original_excerpt END AS raw_original,
    CASE WHEN page.includes_text THEN output_excerpt END AS raw_given
FROM placed CROSS JOIN page ORDER BY benchmark, place;
