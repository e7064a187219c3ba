-- The page on error rates: the work, its tests, known error rates, standards, objections in the literature, and limits. One
-- row, on the page of a model.
--
-- model_title: title of the model
-- parts: parts of the page, in the order of a court's questions
-- heading: heading of a part
-- sentences: sentences of a part, as far as the data of this report support them
WITH done AS (
    SELECT model, benchmark, "table", code_version, finished_at, model_fingerprint
    FROM runs SEMI JOIN page ON page.model = runs.model WHERE is_current
), searches AS (
    SELECT list({
        'title': benchmark_title, 'documents': documents, 'held_out': coalesce(n_documents, held_out), 'held_out_reached': n_reached,
        'held_out_rate': estimate(reached, reached_low, reached_high), 'prefix_tokens': prefix_tokens,
        'suffix_tokens': suffix_tokens, 'stride': stride, 'grid_settings': grid_settings,
        'attempted': raw_attempted, 'finished_at': finished_at, 'code_version': code_version
    } ORDER BY number) AS found
    FROM extraction_pairs AS pairs
    LEFT JOIN (
        FROM current_extraction_rates
        WHERE unit = 'benchmark' AND side = 'held_out' AND rule = 'probability' AND threshold = 0.001
    ) AS rates USING (model, benchmark)
    LEFT JOIN (FROM done WHERE "table" = 'document_memorisation') AS done USING (model, benchmark)
), scored AS (
    SELECT list({
        'title': answers.benchmark_title, 'detector': answers.detector, 'tests': answers.documents.tests,
        'decisions': coalesce(decided.decisions, []), 'attempted': answers.raw_attempted, 'blind': answers.blind,
        'builder': answers.raw_builder, 'origin': answers.raw_origin, 'design_stated_by': answers.design_stated_by,
        'finished_at': done.finished_at, 'code_version': done.code_version
    } ORDER BY shown.place) AS found
    FROM shown_pairs AS shown JOIN answers USING (model, benchmark)
    LEFT JOIN threshold_decisions AS decided ON decided.model = answers.model AND decided.benchmark = answers.benchmark
        AND decided.detector = answers.detector AND decided.parameters = answers.parameters
    LEFT JOIN (FROM done WHERE "table" = 'scores') AS done
        ON done.model = answers.model AND done.benchmark = answers.benchmark
), facts AS (
    SELECT {
        'model_title': model_title(page.model),
        'fingerprint': (SELECT arg_max(model_fingerprint, finished_at) FROM done),
        'searches': coalesce(searches.found, []), 'answers': coalesce(scored.found, []),
        'checked_at': (SELECT max(finished_at) FROM runs WHERE is_current AND "table" = 'evaluations'
            AND model IN (SELECT model FROM control_models)),
        'doses': (SELECT coalesce(list({
            'control': control, 'benchmark': benchmark, 'role': role, 'occurrences': occurrences,
            'documents': documents, 'n_reached': n_reached, 'reached': reached, 'finished_at': finished_at
        } ORDER BY control, benchmark, occurrences), []) FROM occurrences),
        'deviations': (SELECT coalesce(list({
            'title': benchmark_title(benchmark), 'item': item, 'planned': planned, 'found': found
        } ORDER BY benchmark, kind, item), []) FROM all_deviations AS differing WHERE differing.model = page.model)
    } AS facts FROM page, searches, scored WHERE page.kind = 'model'
)
SELECT facts.model_title AS model_title, facts AS raw_facts
FROM facts WHERE len(facts.searches) > 0 OR len(facts.answers) > 0;
