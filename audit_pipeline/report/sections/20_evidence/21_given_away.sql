-- Texts that a prefix gives away (table scores): of a document that stands in it, so the detector gives them no score.
--
-- texts: how many
-- documents: the documents that they are of, by name
SELECT model, benchmark, detector, parameters, count(DISTINCT example_id) AS texts,
    list_sort(list(DISTINCT "group")) AS documents
FROM evidence_scores WHERE status = 'not_applicable' AND starts_with(reason, 'given away')
GROUP BY model, benchmark, detector, parameters
ORDER BY detector, parameters;
