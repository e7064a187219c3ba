-- Columns without a comment are those of: corpus_overlap, lineage
CREATE VIEW overlap_summary AS
SELECT found.benchmark, found.corpus, count(*) AS texts, count(*) FILTER (verdict = 'found') AS found,
    count(*) FILTER (verdict = 'shared text') AS shared_text, count(*) FILTER (verdict = 'not found') AS not_found,
    count(*) FILTER (verdict = 'too short to tell') AS too_short, count(*) FILTER (contaminated) AS contaminated,
    avg(covered) AS mean_covered, any_value(rule) AS rule, any_value(n) AS n,
    any_value(shards_read) AS shards_read, any_value(shards) AS shards, bool_and(is_complete) AS is_complete,
    coalesce(any_value(lineage.benchmark_digest) = any_value(benchmarks.digest), TRUE) AS is_current, found.run_id
FROM corpus_overlap AS found
LEFT JOIN lineage ON lineage."table" = 'corpus_overlap' AND lineage.run_id = found.run_id
    AND lineage."partition" = found.benchmark || '|' || found.corpus
LEFT JOIN benchmarks USING (benchmark)
GROUP BY found.benchmark, found.corpus, found.run_id;

COMMENT ON VIEW overlap_summary IS 'overlap of each benchmark with each searched corpus';
COMMENT ON COLUMN overlap_summary.texts IS 'number of texts of the benchmark';
COMMENT ON COLUMN overlap_summary.found IS 'number of texts with a passage in the corpus that is not shared text';
COMMENT ON COLUMN overlap_summary.shared_text IS 'number of texts with only shared text in the corpus';
COMMENT ON COLUMN overlap_summary.not_found IS 'number of texts without a passage in the corpus';
COMMENT ON COLUMN overlap_summary.too_short IS 'number of texts that are too short for a verdict';
COMMENT ON COLUMN overlap_summary.contaminated IS 'number of texts that are contaminated by the rule';
COMMENT ON COLUMN overlap_summary.mean_covered IS 'mean share of a text''s words in passages of the corpus';
COMMENT ON COLUMN overlap_summary.rule IS 'rule by which a text counts as contaminated';
COMMENT ON COLUMN overlap_summary.n IS 'minimum number of consecutive words of a passage';
COMMENT ON COLUMN overlap_summary.shards_read IS 'number of shards of the corpus that were read completely';
COMMENT ON COLUMN overlap_summary.shards IS 'number of shards of the corpus';
COMMENT ON COLUMN overlap_summary.is_complete IS
    'true if the whole corpus was read; if false, texts that were not found may still be in it';
COMMENT ON COLUMN overlap_summary.is_current IS 'true if the benchmark is unchanged since the search of the corpus';
