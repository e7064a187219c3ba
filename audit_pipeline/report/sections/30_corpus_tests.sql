-- The latest result of each test of a corpus, twins or test set (view current_corpus_tests), the strongest findings first.
--
-- model_title: title of the model
-- benchmark_title: title of the benchmark
-- benchmark: benchmark, twins or test set
-- design: how the sides of the benchmark were obtained; null: the set is no benchmark
-- outcome: outcome of the test, corrected for all p-values of the set
-- sign: verdict of the outcome, as for an answer
-- headline: result in one line, within the limits of the claim level
-- refused: reason why there is no p-value; null: there is a p-value
-- claim_stated_by: person whose statement the claim level depends on; null: it depends on no statement
-- p_values_so_far: number of p-values of tests of this set and model in all runs
-- lineage: number of the ledger entry in this report
SELECT tests.place AS raw_place, entries.number AS lineage, count(*) OVER () AS in_all
FROM page_tests AS tests LEFT JOIN entries
    ON entries."table" = 'corpus_tests' AND entries."partition" = tests.benchmark || '|' || tests.model
    AND entries.run_id = tests.run_id
ORDER BY tests.place LIMIT 80;
