-- The number of attempts on one model and benchmark (view multiplicity_ledger), because with many attempts some findings
-- occur by chance. One row per pair.
--
-- groups_tested: number of documents with a p-value
SELECT * EXCLUDE (evaluations_so_far)
FROM ledger SEMI JOIN all_evidence_pairs USING (model, benchmark);
