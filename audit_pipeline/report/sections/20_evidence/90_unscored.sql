-- Texts that a detector gave no score (table scores), and why.
--
-- texts: how many
SELECT model, benchmark, detector, status, reason, count(DISTINCT example_id) AS texts,
    count(*) OVER (PARTITION BY model, benchmark) AS in_all
FROM evidence_scores WHERE status <> 'ok' GROUP BY model, benchmark, detector, status, reason
QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY detector, texts DESC, reason) <= 40
ORDER BY detector, texts DESC, reason;
