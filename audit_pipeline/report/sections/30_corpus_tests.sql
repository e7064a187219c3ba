-- Tests of a whole corpus, twins or test set (view current_corpus_tests), the latest result of each; those
-- that found most first.
--
-- model_title: what people call the model
-- benchmark_title: what people call the benchmark
-- benchmark: the benchmark, twins or test set
-- design: how the sides of the benchmark came about; null where the set is no benchmark
-- outcome: what the test came to, all p-values of the set allowed for
-- sign: the kind of that, as of an answer
-- headline: the result in one line, which says no more than the claim level allows
-- refused: why there is no p-value; null: there is one
-- claim_stated_by: whose word the level rests on; null where it is more than somebody's word
-- p_values_so_far: p-values of tests of this set and model by all runs there were
-- lineage: number of the lineage entry behind it, in this report
SELECT tests.place AS raw_place, entries.number AS lineage, count(*) OVER () AS in_all
FROM page_tests AS tests LEFT JOIN entries
    ON entries."table" = 'corpus_tests' AND entries."partition" = tests.benchmark || '|' || tests.model
    AND entries.run_id = tests.run_id
ORDER BY tests.place LIMIT 80;
