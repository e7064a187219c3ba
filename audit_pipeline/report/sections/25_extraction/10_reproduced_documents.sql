-- The audited documents (table document_memorisation), the highest coverage first.
--
-- place: rank by coverage
-- log10_draws: decimal logarithm of the draws that yield the strongest passage at least once with a probability of 50%
SELECT documents.model, documents.benchmark, documents.place, cut(documents.document_id, 300) AS document_id,
    cut(documents.title, 300) AS title, documents."group", documents.collection, documents.occurrences,
    documents.characters, documents.windows, documents.reason, documents.claim, documents.reproduced,
    documents.set_apart, documents.predictable, documents.covered_at_0_001, documents.covered_at_0_01,
    documents.covered_at_0_1, documents.covered_at_0_5, documents.covered_by_first_choices,
    documents.covered_set_apart, documents.longest_run, documents.log_p,
    documents.windows_compared, documents.n_held_out, finite(documents.p_value) AS p_value,
    finite(documents.q_bh) AS q_bh, finite(documents.grid_p_value) AS grid_p_value,
    finite(documents.grid_q_bh) AS grid_q_bh, count(*) OVER (PARTITION BY documents.model, documents.benchmark) AS in_all
FROM all_extraction_documents AS documents WHERE documents.side = 'audited'
QUALIFY documents.place <= 150 ORDER BY documents.benchmark, documents.place;
