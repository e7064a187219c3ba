-- The benchmarks of the shown pairs, as they were built.
--
-- label_source: origin of the labels; null: not recorded
-- sides: number of texts of every label, split and language
-- checks: checks of the benchmark's build
-- what: description of the check
-- sources: origins of the documents
-- more_sources: number of sources and collections that are not listed
-- manifest: specification and counts of the build
WITH shown AS (
    SELECT benchmark, digest, design, manifest, count(*) OVER () AS in_all
    FROM (SELECT DISTINCT benchmark FROM shown_pairs) LEFT JOIN benchmarks USING (benchmark)
    ORDER BY benchmark LIMIT 60
), sides AS (
    SELECT benchmark, list({
        'label': label, 'split': split, 'fewest_words': fewest, 'most_words': most, 'language': language,
        'texts': texts, 'groups': groups, 'earliest': earliest, 'latest': latest
    } ORDER BY label DESC NULLS LAST, split, language) AS sides
    FROM (
        SELECT benchmark, label, split, min(words) AS fewest, max(words) AS most, language, count(*) AS texts,
            count(DISTINCT "group") AS groups, min(published) AS earliest, max(published) AS latest
        FROM examples WHERE benchmark IN (SELECT benchmark FROM shown) GROUP BY ALL
    ) GROUP BY ALL
), sources AS (
    SELECT benchmark, list({
        'source': source, 'collection': collection, 'licence': licence, 'documents': documents,
        'earliest': earliest, 'latest': latest, 'retrieved': retrieved
    } ORDER BY source, collection, licence) AS sources
    FROM (
        SELECT used.benchmark, documents.source, documents.collection, documents.licence,
            count(DISTINCT documents.document_id) AS documents, min(documents.published) AS earliest,
            max(documents.published) AS latest, max(documents.retrieved_at) AS retrieved
        FROM documents JOIN (
            SELECT DISTINCT benchmark, document_id FROM examples WHERE benchmark IN (SELECT benchmark FROM shown)
        ) AS used USING (document_id)
        GROUP BY ALL
    ) GROUP BY ALL
), checks AS (
    SELECT benchmark, unnest(((manifest -> 'checks')::JSON[])[1:60]) AS made FROM shown
    WHERE json_type(manifest -> 'checks') = 'ARRAY'
), checked AS (
    SELECT benchmark, list({
        'name': made ->> 'name', 'passed': (made ->> 'passed')::BOOLEAN, 'what': coalesce(made ->> 'what', '')
    }) AS checks
    FROM checks GROUP BY ALL
)
SELECT shown.benchmark AS name, cut(nullif(manifest ->> 'description', ''), 600) AS description, design,
    manifest ->> 'label_source' AS label_source, digest,
    coalesce(sides.sides, []) AS sides, coalesce(checked.checks, []) AS checks,
    coalesce(sources.sources[1:40], []) AS sources,
    greatest(0, coalesce(len(sources.sources), 0) - 40) AS more_sources,
    in_all, manifest AS raw_manifest
FROM shown LEFT JOIN sides USING (benchmark) LEFT JOIN sources USING (benchmark) LEFT JOIN checked USING (benchmark)
ORDER BY shown.benchmark;
