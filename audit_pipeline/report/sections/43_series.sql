-- Series of checkpoints on a benchmark (views series_findings and series_documents). Only on the page across models.
--
-- summary: changes over the series, in one sentence
-- points: audited checkpoints, in order
-- place: step, number of tokens or name of the checkpoint
-- standing_out: number of tested documents that stand out
-- reproduced: number of searched documents with a passage that the model reproduces word for word
-- found: documents that are found at any checkpoint, with their first checkpoint
-- found_by: scores | word for word
-- words: checkpoints at which the document is found, in words
WITH placed AS (
    SELECT *, coalesce(
        'step ' || step, printf('%.3g tokens', tokens), model[length(series) + 2:]
    ) AS place
    FROM all_series_findings SEMI JOIN shown_pairs USING (model, benchmark) WHERE (SELECT kind FROM page) = 'across'
), documents AS (
    SELECT series, benchmark, count(*) AS found_in_all, list({
        'document': cut(document, 300), 'found_by': found_by, 'checkpoints': since_first, 'found_at': found_at,
        'first': coalesce('step ' || first_step, first_model[length(series) + 2:]),
        'lost': coalesce('step ' || lost_step, lost_model[length(series) + 2:])
    } ORDER BY found_by, first_step, document)[:40] AS found
    FROM all_series_documents GROUP BY series, benchmark
)
SELECT series, benchmark, list({
        'model': model, 'place': place, 'tokens': tokens, 'detector': detector,
        'auroc': estimate(auroc, auroc_low, auroc_high), 'standing_out': standing_out, 'tested': tested,
        'reproduced': reproduced, 'documents': documents
    } ORDER BY position) AS points,
    coalesce(any_value(documents.found), []) AS found, coalesce(any_value(found_in_all), 0) AS found_in_all,
    count(*) OVER () AS in_all
FROM placed LEFT JOIN documents USING (series, benchmark)
GROUP BY series, benchmark ORDER BY series, benchmark LIMIT 20;
