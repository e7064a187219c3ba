-- Requests for a benchmark's documents to a model that answers in words, and the answers (tables chat_documents and
-- chat_answers). One row per benchmark. The folder of this name contains its parts.
--
-- number: position of the benchmark
-- rung: headline prompt style, named beforehand; null: the model was not asked in this style
-- documents: number of audited documents with a measurable answer in the headline style
-- unanswered: number of audited documents without such an answer
-- reproduced: number of audited documents with a long common run in an answer
-- not_graded: number of audited documents with a long common run in an answer to an unknown prompt
-- held_out_asked: number of held-out documents that were asked for in the headline style
-- held_out: number of held-out documents with a measurable answer in the headline style
-- held_out_reproduced: number of held-out documents with a long common run in an answer
-- compared_with: number of held-out documents behind the p-values; null: none
-- requests: number of current requests of all prompt styles
-- not_measured: number of these requests that were refused, filtered, cut or answered with nothing
-- headline: result in one line
-- claim: claim about the audited documents; null: the model was not asked in the headline style
-- claim_in_words: claim in sentences
-- calibration_in_words: presence of held-out documents and its consequence
-- unanswered_in_words: number of requests without a measurable answer; null: all have one
-- warning: warning that several versions of the model answered; null: one version
-- versions: models and versions as the interface names them, of all runs
-- name: name of a model or version
-- sent: number of requests of all runs
-- runs: number of runs that sent them
-- prompt_tokens: number of tokens of all prompts; null: not counted
-- output_tokens: number of tokens of all answers; null: not counted
-- cost: cost by the prices; null: no known price
-- without_cost: number of requests without a known price
-- first_at: time of the first request
-- last_at: time of the last request
-- without_time: number of requests without a known time
-- is_current: true if the benchmark is unchanged since the requests
-- lineage: number of the ledger entry in this report
WITH versions AS (
    SELECT model, benchmark, list({'name': cut(answered_by, 200), 'requests': requests} ORDER BY first_at, answered_by)
        AS versions
    FROM (
        SELECT model, benchmark, answered_by, count(*) AS requests, min(asked_at) AS first_at
        FROM chat_requests WHERE answered_by IS NOT NULL GROUP BY ALL
    ) GROUP BY ALL
), spent AS (
    SELECT model, benchmark, count(*) AS sent, count(DISTINCT run_id) AS runs,
        sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(output_tokens)::BIGINT AS output_tokens,
        finite(sum(cost)) AS cost, count(*) FILTER (cost IS NULL) AS without_cost, min(asked_at) AS first_at,
        max(asked_at) AS last_at, count(*) FILTER (asked_at IS NULL) AS without_time
    FROM chat_requests GROUP BY ALL
)
SELECT pairs.number, pairs.model, pairs.benchmark, pairs.rung, pairs.documents, pairs.unanswered,
    pairs.reproduced, pairs.not_graded, pairs.held_out_asked, pairs.held_out, pairs.held_out_reproduced, pairs.compared_with,
    pairs.requests, pairs.not_measured,
    coalesce(versions.versions, []) AS versions, coalesce(spent.sent, 0) AS sent,
    coalesce(spent.runs, 0) AS runs, spent.prompt_tokens, spent.output_tokens, spent.cost,
    coalesce(spent.without_cost, 0) AS without_cost, spent.first_at, spent.last_at,
    coalesce(spent.without_time, 0) AS without_time,
    coalesce(done.benchmark_digest = benchmarks.digest, TRUE) AS is_current, entries.number AS lineage,
    count(*) OVER () AS in_all
FROM chat_pairs AS pairs LEFT JOIN versions USING (model, benchmark) LEFT JOIN spent USING (model, benchmark)
LEFT JOIN runs AS done ON done.model = pairs.model AND done.benchmark = pairs.benchmark
    AND done.run_id = pairs.run_id AND done."table" = 'chat_documents'
LEFT JOIN benchmarks ON benchmarks.benchmark = pairs.benchmark
LEFT JOIN entries ON entries."table" = done."table"
    AND entries."partition" = pairs.benchmark || '|' || pairs.model AND entries.run_id = pairs.run_id
ORDER BY pairs.number LIMIT (SELECT sections FROM page);
