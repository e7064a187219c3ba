-- The quiz (table chat_quiz): how often the model told a document's own wording from three paraphrases, audited and
-- held-out documents in one list, the most often first.
--
-- place: place in the list of its side
WITH placed AS (
    SELECT quiz.*, row_number() OVER (
        PARTITION BY benchmark, side ORDER BY accuracy DESC NULLS LAST, document_id
    ) AS place
    FROM current_chat_quiz AS quiz SEMI JOIN chat_pairs USING (model, benchmark)
)
SELECT model, benchmark, side, place, cut(document_id, 300) AS document_id, cut(title, 300) AS title, questions,
    answered, finite(accuracy) AS accuracy, finite(style_accuracy) AS style_accuracy, n_held_out,
    finite(p_value) AS p_value, finite(lead_p_value) AS lead_p_value, finite(q_bh) AS q_bh, claim,
    count(*) OVER (PARTITION BY benchmark) AS in_all
FROM placed QUALIFY place <= CASE side WHEN 'audited' THEN 100 ELSE 50 END
ORDER BY benchmark, accuracy DESC NULLS LAST, side, document_id;
