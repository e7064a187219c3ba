-- What was asked, all answers in a sentence, and what cannot be trusted. One row.
--
-- heading: what was asked, as a title; of a control the model's title
-- question: what was asked, in one sentence
-- models: models that were audited, tested, searched for passages or asked in words
-- benchmarks: benchmarks that this was done on
-- pairs: pairs of such a model and such a benchmark
-- tests: current results of tests of whole sets that were not refused
-- first_audited: when the oldest of the current answers was ready
-- last_audited: when the newest of them was
-- summary: all answers and tests in one sentence
-- explanation: how many of them come to what; empty where there is one
-- how_sure: how sure all of it is, in a few plain sentences
-- what_would_change: what would change it
-- instrument_words: what the instrument check says, in a sentence
-- model_title: what people call the model
-- benchmark_title: what people call the benchmark
-- word_for_word: what models were found to give word for word, by benchmark, those that give of most documents first
-- tried: how much was tried, and in how many runs; null where no lineage entry says so
-- planned: whether it was planned beforehand; null where no lineage entry says when it was done
-- more_word_for_word: benchmarks that are not listed
-- in_answers: what models that answer in words gave of documents, by benchmark, those that gave of most documents first
-- more_in_answers: benchmarks that are not listed
-- gaps: damaged files: numbers that cannot be traced
-- more_gaps: gaps that are not listed
WITH mine AS (
    -- Gaps of documents concern every page.
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
    -- Audited documents of a user's own files; null where any benchmark is of other texts.
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
