-- Texts that the page's model was made to forget, before and after (view current_unlearning): one row per comparison,
-- the latest first.
--
-- outcome: what the comparison comes to
-- headline: the same in one sentence
-- explanation: what it rests on, and what it does not say, a sentence or more each
-- retrained: a model that was trained without these texts; null: none was named
-- numbers: every metric, of the model before, after and retrained, and its change from before to after
-- forget: of the texts to be forgotten
-- held_out: of the held-out texts
-- both: of one side against the other
-- unknown: the metrics without a value, and why
-- lineage: number of the lineage entry behind it, in this report
WITH mine AS (
    SELECT current.*, estimate(value, ci_low, ci_high, method) AS measured FROM current_unlearning AS current, page
    WHERE current.model = page.model
), told AS (
    SELECT model, benchmark, before, holdout, retrained, run_id,
        unlearning_words(list({
            'metric': metric, 'role': role, 'side': side, 'value': finite(value), 'ci_low': finite(ci_low),
            'ci_high': finite(ci_high), 'n': n, 'method': method, 'reason': reason
        }), before, model) AS words
    FROM mine GROUP BY model, benchmark, before, holdout, retrained, run_id
), beside AS (
    SELECT run_id, metric, role, any_value(measured) FILTER (side = 'forget') AS forget,
        any_value(measured) FILTER (side = 'holdout') AS held_out, any_value(measured) FILTER (side = 'both') AS "both"
    FROM mine WHERE value IS NOT NULL GROUP BY ALL
), numbered AS (
    SELECT run_id, list({
        'metric': metric, 'role': role, 'forget': forget, 'held_out': held_out, 'both': "both"
    } ORDER BY unlearning_place(metric), metric, list_position(['before', 'after', 'retrained', 'change'], role)) AS numbers
    FROM beside GROUP BY run_id
), lacking AS (
    SELECT run_id, list({'metric': metric, 'reason': reason} ORDER BY metric, reason) AS unknown
    FROM (SELECT DISTINCT run_id, metric, reason FROM mine WHERE value IS NULL) GROUP BY run_id
)
SELECT told.before, told.model, told.benchmark, told.holdout, told.retrained, words.outcome AS outcome,
    words.headline AS headline, words.explanation AS explanation, coalesce(numbers, []) AS numbers,
    coalesce(unknown, []) AS unknown, entries.number AS lineage, count(*) OVER () AS in_all
FROM told LEFT JOIN numbered USING (run_id) LEFT JOIN lacking USING (run_id)
LEFT JOIN entries ON entries."table" = 'unlearning'
    AND entries."partition" = told.benchmark || '|' || told.model AND entries.run_id = told.run_id
ORDER BY entries.number NULLS LAST, told.benchmark, told.holdout, told.before, told.retrained LIMIT 20;
