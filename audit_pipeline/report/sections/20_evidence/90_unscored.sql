-- Reasons why a detector gave texts no score (table scores).
--
-- texts: number of texts
SELECT model, benchmark, detector, status, reason, count(DISTINCT example_id) AS texts,
    count(*) OVER (PARTITION BY model, benchmark) AS in_all
FROM all_evidence_scores WHERE status <> 'ok' GROUP BY model, benchmark, detector, status, reason
QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY detector, texts DESC, reason) <= 40
ORDER BY detector, texts DESC, reason;
