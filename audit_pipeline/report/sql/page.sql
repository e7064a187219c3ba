-- Tables that the sections of one page read. page_data.py creates three further tables: page (one row), asked_pairs (all
-- pairs of the page) and shown_pairs (the shown pairs in order).

CREATE OR REPLACE TEMP TABLE page_models AS
-- The model of the page. On the page across models: all models except controls, which check the instrument.
SELECT DISTINCT found.model FROM (
    SELECT model FROM tests UNION ALL SELECT model FROM extraction_counts UNION ALL SELECT model FROM chat_counts
    UNION ALL SELECT model FROM covered
) AS found, page
WHERE CASE WHEN page.model IS NULL THEN found.model NOT IN (SELECT model FROM control_models)
    ELSE found.model = page.model END;

CREATE OR REPLACE TEMP TABLE page_tests AS
FROM tests SEMI JOIN page_models USING (model);

CREATE OR REPLACE TEMP TABLE page_searches AS
-- The searches for passages that the model reproduces word for word.
FROM extraction_counts SEMI JOIN page_models USING (model);

CREATE OR REPLACE TEMP TABLE extraction_pairs AS
-- Their benchmarks, those with most reproduced documents first.
SELECT counted.*, row_number() OVER (ORDER BY reproduced DESC, benchmark) AS number
FROM extraction_counts AS counted SEMI JOIN page ON page.model = counted.model;

CREATE OR REPLACE TEMP TABLE page_chats AS
-- The documents that models that answer in words were asked for.
FROM chat_counts SEMI JOIN page_models USING (model);

CREATE OR REPLACE TEMP TABLE chat_pairs AS
-- The benchmarks of these documents, those with most reproduced documents first.
SELECT counted.*, row_number() OVER (ORDER BY reproduced DESC, benchmark) AS number
FROM chat_counts AS counted SEMI JOIN page ON page.model = counted.model;

CREATE OR REPLACE TEMP TABLE chat_requests AS
-- Every request to the model of the page, of all runs.
FROM chat_answers SEMI JOIN chat_pairs USING (model, benchmark);

CREATE OR REPLACE TEMP TABLE page_overlap AS
-- The searches of corpora for the benchmarks of the page. The page across models has all searches, also without an audit.
SELECT summary.* FROM overlap_summary AS summary, page
WHERE page.model IS NULL OR benchmark IN (SELECT benchmark FROM shown_pairs);

CREATE OR REPLACE TEMP TABLE page_lineage AS
-- The numbered ledger entries behind the page, the nearest to the answers first.
WITH shown AS (
    SELECT "table", benchmark || '|' || model AS "partition", run_id
    FROM current_runs SEMI JOIN shown_pairs USING (model, benchmark)
    UNION SELECT "table", benchmark || '|' || model, run_id
        FROM current_runs SEMI JOIN extraction_pairs USING (model, benchmark, run_id)
    UNION SELECT "table", benchmark || '|' || model, run_id
        FROM current_runs SEMI JOIN chat_pairs USING (model, benchmark)
        WHERE "table" = 'chat_documents'
    UNION SELECT 'chat_answers', benchmark || '|' || model, run_id FROM chat_requests
    UNION SELECT 'corpus_tests', benchmark || '|' || model, run_id FROM page_tests
    UNION SELECT 'unlearning', benchmark || '|' || compared.model, run_id
        FROM current_unlearning AS compared, page WHERE compared.model = page.model
    UNION SELECT 'examples', benchmark, run_id FROM examples SEMI JOIN shown_pairs USING (benchmark)
    UNION SELECT 'split_quality', benchmark, run_id FROM split_quality SEMI JOIN shown_pairs USING (benchmark)
    UNION SELECT 'corpus_overlap', benchmark || '|' || corpus, run_id
        FROM page_overlap
    UNION SELECT 'documents', source, run_id FROM documents
        WHERE document_id IN (SELECT document_id FROM examples SEMI JOIN shown_pairs USING (benchmark))
    UNION SELECT 'control_studies', study, run_id FROM control_studies
), explaining AS (
    FROM lineage SEMI JOIN shown
        ON shown."table" = lineage."table" AND shown."partition" = lineage."partition" AND shown.run_id = lineage.run_id
), numbered AS (
    SELECT *, count(*) OVER () AS in_all, row_number() OVER (
        ORDER BY
            list_position(['evaluations', 'split_quality', 'examples', 'scores', 'documents'], "table") NULLS LAST,
            "table", "partition", finished_at, run_id
    ) AS number
    FROM explaining
), listed AS (
    SELECT *, min(number) OVER (PARTITION BY package_versions) AS first_of_environment FROM numbered
    WHERE number <= 300
)
SELECT * EXCLUDE (first_of_environment), dense_rank() OVER (ORDER BY first_of_environment) AS environment FROM listed;

CREATE OR REPLACE TEMP TABLE entries AS
-- The number of the entry on the page, per table, partition and run.
SELECT "table", "partition", run_id, max(number) AS number FROM page_lineage GROUP BY ALL;
