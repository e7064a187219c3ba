-- What it takes to run the same again. One row.
--
-- commands: what is typed to have the numbers again
-- more_commands: pairs whose command is not listed
-- environments: versions of the packages that the steps behind the numbers ran with
WITH pairs AS (
    SELECT model, benchmark, options.settings, benchmark IN (FROM handed_over) AS is_given,
        row_number() OVER (ORDER BY model, benchmark) AS place
    FROM asked_pairs LEFT JOIN options USING (model, benchmark)
), environments AS (
    SELECT environment, any_value(package_versions) AS package_versions FROM page_lineage GROUP BY ALL
)
SELECT (SELECT greatest(0, count(*) - 40) FROM pairs) AS more_commands,
    (SELECT coalesce(list({'number': environment, 'packages': package_versions} ORDER BY environment), [])
        FROM environments) AS environments,
    (SELECT coalesce(list({
        'model': model, 'benchmark': benchmark, 'settings': settings
    } ORDER BY place), []) FROM pairs WHERE place <= 40) AS raw_pairs,
    EXISTS (FROM pairs WHERE NOT is_given) AS raw_has_models;
