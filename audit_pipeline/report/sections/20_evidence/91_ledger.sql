-- How much was tried on one model and benchmark: who looks often enough finds something by chance (view
-- multiplicity_ledger). One row per pair.
--
-- groups_tested: documents with a p-value
SELECT * EXCLUDE (evaluations_so_far)
FROM ledger SEMI JOIN evidence_pairs USING (model, benchmark);
