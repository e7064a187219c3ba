-- The phrases by which answers count as refused (table chat_answers), with the number of answers of all runs.
--
-- phrase: phrase
-- answers: number of answers that count as refused by the phrase
WITH counted AS (
    SELECT model, benchmark, cut(refusal_phrase, 200) AS phrase, count(*) AS answers
    FROM chat_requests WHERE refusal_phrase IS NOT NULL GROUP BY ALL
)
SELECT *, count(*) OVER (PARTITION BY benchmark) AS in_all FROM counted
QUALIFY row_number() OVER (PARTITION BY benchmark ORDER BY answers DESC, phrase) <= 30
ORDER BY benchmark, answers DESC, phrase;
