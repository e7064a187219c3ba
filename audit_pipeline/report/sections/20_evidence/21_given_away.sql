-- Texts without a score (table scores), because the prefix of the detector contains their document.
--
-- texts: number of texts
-- documents: their documents, by name
SELECT model, benchmark, detector, parameters, count(DISTINCT example_id) AS texts,
    list_sort(list(DISTINCT "group")) AS documents
FROM all_evidence_scores WHERE status = 'not_applicable' AND starts_with(reason, 'given away')
GROUP BY model, benchmark, detector, parameters
ORDER BY detector, parameters;
