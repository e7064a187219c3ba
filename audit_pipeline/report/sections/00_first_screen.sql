-- The question of the page, all answers in one sentence, and damaged files. One row.
--
-- heading: title of the page: its question, or the model's title for a control
-- question: question in one sentence
-- models: number of models that were audited, tested, searched for passages or asked in words
-- benchmarks: number of benchmarks of these models
-- pairs: number of pairs of these models and benchmarks
-- tests: number of current tests of whole sets that were not refused
-- first_audited: time at which the oldest current answer was complete
-- last_audited: time at which the newest current answer was complete
-- summary: all answers and tests in one sentence
-- explanation: number of answers per result; empty if there is one answer
-- how_sure: certainty of the answers, in a few plain sentences
-- what_would_change: what would change the answers
-- instrument_words: result of the instrument check, in one sentence
-- model_title: title of the model
-- benchmark_title: title of the benchmark
-- word_for_word: searches for passages that a model reproduces word for word, by benchmark, most reproduced documents first
-- tried: number of attempts and of their runs; null: not in the ledger
-- planned: sealed plan of the results; null: time of the work not in the ledger
-- more_word_for_word: number of benchmarks that are not listed
-- in_answers: results of models that were asked in words, by benchmark, most reproduced documents first
-- more_in_answers: number of benchmarks that are not listed
-- gaps: damaged files, whose numbers cannot be traced
-- more_gaps: number of gaps that are not listed
WITH mine AS (
    -- Every page depends on the documents, so their gaps are on every page.
    SELECT gaps.*, row_number() OVER () AS place FROM gaps, page
    WHERE page.kind = 'across' OR gaps."table" = 'documents'
        OR gaps."partition" IN (
            SELECT benchmark || '|' || model FROM shown_pairs UNION SELECT benchmark FROM shown_pairs
            UNION SELECT benchmark || '|' || model FROM page_chats
        )
), every AS (
    SELECT model, benchmark FROM asked_pairs
    UNION SELECT model, benchmark FROM page_tests WHERE refused IS NULL
    UNION SELECT model, benchmark FROM page_searches UNION SELECT model, benchmark FROM page_chats
), own AS (
    -- Number of audited documents of the user's files, or null if a benchmark has other texts.
    SELECT CASE WHEN bool_and(benchmark IN (
        SELECT benchmark FROM benchmarks WHERE (manifest ->> '$.spec.sources') = '["local_files"]'
    )) THEN (
        SELECT count(DISTINCT "group") FROM examples
        WHERE benchmark IN (SELECT benchmark FROM every) AND split = 'evaluation' AND label IS NULL
    ) END AS documents FROM every
)
SELECT CASE WHEN page.model IN (SELECT model FROM control_models) THEN model_title(page.model) END AS heading,
    (SELECT coalesce(list({
        'table': "table", 'partition': "partition", 'run_id': run_id
    } ORDER BY place), []) FROM mine WHERE place <= 50) AS gaps,
    (SELECT greatest(0, count(*) - 50) FROM mine) AS more_gaps,
    (SELECT documents FROM own) AS raw_own_documents
FROM page;
