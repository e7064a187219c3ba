-- One printed page per model and benchmark with an answer: question, answers, limits of the answers, model, dates and
-- digests.
--
-- number: position among the sheets
-- question: question
-- answers: conclusions, the verdict first, each with a neutral line (brief)
-- held_out_by: how the comparison texts were chosen and who states it; null: not recorded
-- not_shown: limits of answers of these kinds
-- compared: evaluated and calibrating texts, one row per split
-- labels_by: person or rule that decides which texts are members or cannot have been read; null: not recorded
-- tried: number of attempts of the search and of the scores
-- planned: sealed plans of the search and of the scores
-- words_alone: separation of the two sides by the blind control, or the reason why it is missing; null without scores
-- works: titles of the audited documents and of the comparison documents, one row per side
-- titles: first titles in alphabetical order
-- model: name of the model in commands
-- fingerprint: fingerprint of the model of the current results
-- tokenizer: fingerprint of the tokenizer
-- loaded_from: location of the model's files
-- digest: digest of the benchmark of the current results
-- first_at: time at which the first current result was complete
-- last_at: time at which the last current result was complete
-- runs: runs of the current results
-- documents: documents that the benchmark was built from
-- documents_digest: sha256 of the documents' sorted sha256, one per line; null: not built from documents
-- listed: first documents by title
WITH pairs AS (
    SELECT model, benchmark, place FROM shown_pairs
    UNION ALL SELECT DISTINCT model, benchmark, 1000 FROM (
        SELECT model, benchmark FROM page_tests WHERE refused IS NULL
        UNION ALL SELECT model, benchmark FROM page_searches
        UNION ALL SELECT model, benchmark FROM page_chats
    ) WHERE (model, benchmark) NOT IN (SELECT (model, benchmark) FROM shown_pairs)
), made AS (
    SELECT model, benchmark, arg_max(model_fingerprint, finished_at) AS fingerprint,
        arg_max(tokenizer_fingerprint, finished_at) AS tokenizer, arg_max(benchmark_digest, finished_at) AS digest,
        min(finished_at) FILTER ("table" <> 'pair_answers') AS first_at,
        max(finished_at) FILTER ("table" <> 'pair_answers') AS last_at, list({
            'table': "table", 'run_id': run_id, 'code_version': code_version, 'data_version': data_version
        } ORDER BY "table", run_id) AS runs
    FROM runs SEMI JOIN pairs USING (model, benchmark)
    WHERE is_current AND "table" IN (
        'scores', 'evaluations', 'document_memorisation', 'corpus_tests', 'pair_answers', 'chat_documents'
    )
    GROUP BY ALL
), loaded AS (
    SELECT fingerprint, any_value(cut(coalesce(resolved_from, '') || coalesce(', revision ' || revision, ''), 200))
        AS loaded_from
    FROM models GROUP BY ALL
), works AS (
    SELECT benchmark, list({'side': side, 'documents': documents, 'titles': titles[1:12]} ORDER BY side) AS works
    FROM (
        SELECT benchmark, side, count(*) AS documents, list(title ORDER BY title, document_id) AS titles
        FROM (
            SELECT DISTINCT benchmark, document_id, CASE WHEN label = 0 THEN 'held_out' ELSE 'audited' END AS side
            FROM examples SEMI JOIN pairs USING (benchmark) WHERE label = 0 OR split = 'evaluation'
        ) JOIN (SELECT document_id, cut(title, 70) AS title FROM documents) USING (document_id) GROUP BY ALL
    ) GROUP BY ALL
), used AS (
    SELECT benchmark, count(*) AS documents,
        sha256(string_agg(sha256, chr(10) ORDER BY sha256)) AS documents_digest,
        list({'title': cut(title, 70), 'sha256': sha256} ORDER BY title, sha256) AS listed
    FROM (SELECT DISTINCT benchmark, document_id FROM examples SEMI JOIN pairs USING (benchmark))
    JOIN documents USING (document_id)
    GROUP BY ALL
)
SELECT row_number() OVER (ORDER BY pairs.place, pairs.model, pairs.benchmark) AS number, pairs.model, pairs.benchmark,
    model_title(pairs.model) AS model_title, benchmark_title(pairs.benchmark) AS benchmark_title,
    coalesce(answers.counted, []) AS compared, coalesce(works.works, []) AS works, made.fingerprint, made.tokenizer,
    loaded.loaded_from, made.digest, made.first_at, made.last_at, coalesce(made.runs, []) AS runs,
    coalesce(used.documents, 0) AS documents,
    used.documents_digest, coalesce(used.listed[1:8], []) AS listed, count(*) OVER () AS in_all,
    benchmarks.manifest ->> '$.spec.builder' AS raw_builder, benchmarks.manifest ->> 'origin' AS raw_origin,
    benchmarks.design AS raw_design, benchmarks.design_stated_by AS raw_design_stated_by, answers.blind AS raw_blind, answers.model IS NOT NULL AS raw_has_scores,
    [attempt FOR attempt IN [searched.raw_attempted, answers.raw_attempted] IF attempt IS NOT NULL] AS raw_attempted
FROM pairs LEFT JOIN made USING (model, benchmark) LEFT JOIN loaded USING (fingerprint)
LEFT JOIN answers USING (model, benchmark)
LEFT JOIN extraction_counts AS searched USING (model, benchmark)
LEFT JOIN works ON works.benchmark = pairs.benchmark LEFT JOIN used ON used.benchmark = pairs.benchmark
LEFT JOIN benchmarks ON benchmarks.benchmark = pairs.benchmark
ORDER BY number LIMIT 12;
