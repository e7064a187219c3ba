-- What a model that answers in words was asked of a benchmark's documents, and what came back (tables chat_documents and
-- chat_answers), one row per benchmark; its parts are in the folder of this name.
--
-- number: place of the benchmark
-- rung: the rung that was named beforehand to answer; null where the model was not asked at it
-- documents: audited documents with an answer at that rung that could be measured
-- unanswered: audited documents without one
-- reproduced: audited documents of which an answer holds a long stretch
-- not_graded: audited documents of which an answer holds a long stretch, where the prompt is not known
-- held_out_asked: held-out documents that were asked for at that rung
-- held_out: held-out documents with an answer at that rung that could be measured
-- held_out_reproduced: held-out documents of which an answer holds a long stretch
-- compared_with: held-out documents behind the p-values; null where there are none
-- requests: requests of the ladder that count now
-- not_measured: of them, those that were refused, filtered, cut or answered with nothing
-- headline: what was found, in one line
-- claim: what may be said of the audited documents; null where the model was not asked at that rung
-- claim_in_words: the claim in sentences
-- calibration_in_words: whether there are held-out documents beside, and what follows
-- unanswered_in_words: how many requests could not be measured; null where all were
-- warning: that several versions of the model answered; null where one did
-- versions: models and versions as the interface names them, of all runs
-- name: what one of them is called
-- sent: requests of all runs
-- runs: runs that they were sent in
-- prompt_tokens: tokens of all prompts; null where none was counted
-- output_tokens: tokens of all answers; null where none was counted
-- cost: what they cost by the prices; null where no price is known
-- without_cost: of them, requests of which no price is known
-- first_at: when the first was sent
-- last_at: when the last was sent
-- without_time: requests of which it is not known when they were sent
-- is_current: whether the benchmark is still as it was when it was asked about
-- lineage: number of the lineage entry behind it, in this report
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
