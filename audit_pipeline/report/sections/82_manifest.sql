-- The commands and environments that reproduce the numbers. One row.
--
-- commands: commands that compute the numbers again
-- more_commands: number of pairs whose command is not listed
-- environments: package versions of the steps behind the numbers
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
