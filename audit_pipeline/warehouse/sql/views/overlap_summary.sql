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

COMMENT ON VIEW overlap_summary IS
    'how much of each benchmark is in each corpus that was searched';
COMMENT ON COLUMN overlap_summary.texts IS 'texts of the benchmark';
COMMENT ON COLUMN overlap_summary.found IS 'texts that are found: with a passage that is no shared text';
COMMENT ON COLUMN overlap_summary.shared_text IS 'texts of which only shared text is there';
COMMENT ON COLUMN overlap_summary.not_found IS 'texts of which nothing does';
COMMENT ON COLUMN overlap_summary.too_short IS 'texts that are too short to tell';
COMMENT ON COLUMN overlap_summary.contaminated IS 'texts that count by the rule';
COMMENT ON COLUMN overlap_summary.mean_covered IS 'mean share of the words of a text in passages that were found';
COMMENT ON COLUMN overlap_summary.rule IS 'the rule by which a text counts as contaminated';
COMMENT ON COLUMN overlap_summary.n IS 'words on end that were looked for';
COMMENT ON COLUMN overlap_summary.shards_read IS 'shards of the corpus that were read to their ends';
COMMENT ON COLUMN overlap_summary.shards IS 'shards that it has';
COMMENT ON COLUMN overlap_summary.is_complete IS
    'whether all of it was read; if not, not found does not say not there';
COMMENT ON COLUMN overlap_summary.is_current IS
    'whether the benchmark is still as it was when the corpus was searched';
