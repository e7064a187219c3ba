-- Alternative explanations of the passages, and their tests (view rival_explanations).
SELECT rivals.* EXCLUDE (place)
FROM all_rivals AS rivals SEMI JOIN all_extraction_pairs USING (model, benchmark)
ORDER BY rivals.benchmark, rivals.place;
