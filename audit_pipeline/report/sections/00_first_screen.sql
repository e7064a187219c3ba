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
-- summary: all answers and tests in a few sentences
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
WITH asked AS (
    SELECT model, benchmark, audited_at AS ready_at FROM asked_pairs JOIN answers USING (model, benchmark)
    UNION ALL SELECT model, benchmark, finished_at FROM page_tests WHERE refused IS NULL
), mine AS (
    -- Gaps of documents concern every page.
    SELECT gaps.*, row_number() OVER () AS place FROM gaps, page
    WHERE page.kind = 'across' OR gaps."table" = 'documents'
        OR gaps."partition" IN (
            SELECT benchmark || '|' || model FROM shown_pairs UNION SELECT benchmark FROM shown_pairs
            UNION SELECT benchmark || '|' || model FROM page_chats
        )
), extracted AS (
    SELECT *, row_number() OVER (ORDER BY reproduced DESC, model, benchmark) AS place FROM page_searches
), chats AS (
    SELECT *, row_number() OVER (ORDER BY reproduced DESC, model, benchmark) AS place FROM page_chats
), every AS (
    SELECT model, benchmark FROM asked UNION SELECT model, benchmark FROM extracted
    UNION SELECT model, benchmark FROM chats
), named AS (
    -- What stands before a headline where there are several subjects.
    SELECT model, benchmark, CASE WHEN count(*) OVER () = 1 THEN '' ELSE
        CASE WHEN min(model) OVER () = max(model) OVER () THEN '' ELSE model_title(model) || ' on ' END
        || '“' || benchmark_title(benchmark) || '”: ' END AS subject
    FROM every
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
    NULL::VARCHAR AS question,
    (SELECT count(DISTINCT model) FROM every) AS models,
    (SELECT count(DISTINCT benchmark) FROM every) AS benchmarks,
    (SELECT count(*) FROM every) AS pairs,
    (SELECT count(*) FROM page_tests WHERE refused IS NULL) AS tests,
    (SELECT min(ready_at) FROM asked) AS first_audited,
    (SELECT max(ready_at) FROM asked) AS last_audited,
    NULL::VARCHAR AS summary, NULL::VARCHAR AS how_sure, NULL::VARCHAR AS what_would_change,
    NULL::VARCHAR AS instrument_words,
    (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'model_title': model_title, 'benchmark_title': benchmark_title,
        'outcome': conclusion.outcome, 'sign': conclusion.sign, 'question': conclusion.question,
        'headline': conclusion.headline, 'how_sure': conclusion.how_sure,
        'what_would_change': conclusion.what_would_change, 'claim': conclusion.claim, 'documents': documents,
        'reproduced': reproduced, 'held_out': held_out, 'held_out_reproduced': held_out_reproduced,
        'tried': tried, 'planned': planned
    } ORDER BY place), []) FROM extracted WHERE place <= 12) AS word_for_word,
    (SELECT greatest(0, count(*) - 12) FROM extracted) AS more_word_for_word,
    (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'model_title': model_title, 'benchmark_title': benchmark_title,
        'outcome': conclusion.outcome, 'sign': conclusion.sign, 'question': conclusion.question,
        'headline': conclusion.headline, 'how_sure': conclusion.how_sure,
        'what_would_change': conclusion.what_would_change, 'claim': conclusion.claim, 'documents': documents,
        'reproduced': reproduced, 'held_out': held_out, 'held_out_reproduced': held_out_reproduced
    } ORDER BY place), []) FROM chats WHERE place <= 12) AS in_answers,
    (SELECT greatest(0, count(*) - 12) FROM chats) AS more_in_answers,
    (SELECT coalesce(list({
        'table': "table", 'partition': "partition", 'run_id': run_id
    } ORDER BY place), []) FROM mine WHERE place <= 50) AS gaps,
    (SELECT greatest(0, count(*) - 50) FROM mine) AS more_gaps,
    (SELECT coalesce(list(DISTINCT model_title(model)), []) FROM every) AS _models,
    (SELECT coalesce(list(DISTINCT benchmark_title(benchmark)), []) FROM every) AS _benchmarks,
    (SELECT documents FROM own) AS _own_documents, (SELECT count(*) FROM asked_pairs) AS _pairs,
    (SELECT coalesce(list({
        'outcome': outcome, 'claim_level': claim_level, 'headline': subject || headline,
        'searched': extracted.documents > 0
    } ORDER BY shown_pairs.place), [])
        FROM shown_pairs JOIN answers USING (model, benchmark) JOIN named USING (model, benchmark)
        LEFT JOIN extracted USING (model, benchmark)) AS _answers,
    (SELECT coalesce(list({
        'test': test, 'outcome': outcome, 'claim_level': claim_level, 'headline': headline
    } ORDER BY place), []) FROM page_tests) AS _tests,
    (SELECT coalesce(list({
        'outcome': conclusion.outcome, 'headline': subject || conclusion.headline
    } ORDER BY place), []) FROM extracted JOIN named USING (model, benchmark)) AS _searches,
    (SELECT coalesce(list({
        'outcome': conclusion.outcome, 'headline': subject || conclusion.headline
    } ORDER BY place), []) FROM chats JOIN named USING (model, benchmark)) AS _chats,
    (SELECT count(DISTINCT (model, benchmark)) FROM (
        SELECT model, benchmark, reproduced FROM extracted UNION ALL SELECT model, benchmark, reproduced FROM chats
    ) WHERE reproduced > 0) AS _reproduced,
    (SELECT coalesce(list({'exposed': exposed, 'twin': twin, 'answers': answers, 'detector': detector}
        ORDER BY place), []) FROM instrument_checks) AS _checks
FROM page;
