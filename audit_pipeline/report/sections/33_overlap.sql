-- Overlap of a benchmark's texts with an open corpus (view overlap_summary). One row per benchmark and corpus, most found texts first.
--
-- texts: number of texts of the benchmark
-- found: number of texts with a passage in the corpus that is not shared text
-- shared_text: number of texts with only shared text in the corpus
-- not_found: number of texts without a passage in the corpus
-- too_short: number of texts that are too short for a verdict
-- contaminated: number of texts that are contaminated by the rule
-- mean_covered: mean share of a text's words in passages of the corpus
-- is_complete: true if the whole corpus was read
-- evidence: ranks of the named detector's scores by the model of the page; null on the page across models
-- found_rank: mean share of the benchmark's texts that a found text outscores
-- other_rank: mean share of the benchmark's texts that a text without a passage outscores
-- passages: longest passages, shared text last
-- document: name of the first document of the corpus that contains the passage
-- lineage: number of the ledger entry in this report
WITH ranked AS (
    SELECT scored.benchmark, scored.example_id,
        percent_rank() OVER (PARTITION BY scored.benchmark ORDER BY scored.score) AS rank
    FROM evidence_scores AS scored JOIN evidence_pairs AS pairs USING (model, benchmark, detector, parameters)
    WHERE scored.status = 'ok'
), evidence AS (
    SELECT found.benchmark, found.corpus, avg(rank) FILTER (verdict = 'found') AS found_rank,
        avg(rank) FILTER (verdict = 'not found') AS other_rank,
        count(rank) FILTER (verdict = 'found') AS n_found, count(rank) FILTER (verdict = 'not found') AS n_other
    FROM corpus_overlap AS found JOIN ranked USING (benchmark, example_id) GROUP BY ALL
), longest AS (
    SELECT spans.*, row_number() OVER (
        PARTITION BY benchmark, corpus ORDER BY is_common, words DESC, example_id, char_start
    ) AS place
    FROM overlap_spans AS spans SEMI JOIN page_overlap USING (benchmark, corpus)
    QUALIFY place <= 5
), passages AS (
    SELECT longest.benchmark, longest.corpus, list({
        'example_id': example_id, 'words': words, 'documents': documents, 'is_common': is_common,
        'before': CASE WHEN page.includes_text THEN "before" END,
        'excerpt': CASE WHEN page.includes_text THEN excerpt END,
        'after': CASE WHEN page.includes_text THEN "after" END,
        'document': cut(found_in[1], 300), 'url': cut(nullif(urls[1], ''), 300), 'shard': cut(shards[1], 300),
        'start': starts[1]
    } ORDER BY place) AS passages
    FROM longest, page GROUP BY ALL
)
SELECT summary.* EXCLUDE (run_id), coalesce(passages.passages, []) AS passages,
    CASE WHEN n_found > 0 AND n_other > 0 THEN {
        'found_rank': found_rank, 'other_rank': other_rank, 'n_found': n_found, 'n_other': n_other
    } END AS evidence,
    entries.number AS lineage, count(*) OVER () AS in_all
FROM page_overlap AS summary
LEFT JOIN passages USING (benchmark, corpus) LEFT JOIN evidence USING (benchmark, corpus)
LEFT JOIN entries ON entries."table" = 'corpus_overlap' AND entries.run_id = summary.run_id
    AND entries."partition" = summary.benchmark || '|' || summary.corpus
ORDER BY summary.found DESC, summary.benchmark, summary.corpus LIMIT 20;
