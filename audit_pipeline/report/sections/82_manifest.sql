-- What it takes to run the same again. One row.
--
-- commands: what is typed to have the numbers again
-- more_commands: pairs whose command is not listed
-- environments: versions of the packages that the steps behind the numbers ran with
WITH pairs AS (
    SELECT model, benchmark, options.settings, benchmark IN (FROM handed_over) AS is_given,
        row_number() OVER (ORDER BY model, benchmark) AS place
    FROM asked_pairs LEFT JOIN options USING (model, benchmark)
), typed AS (
    SELECT place, command_again(model, benchmark, settings, is_given) AS command FROM pairs WHERE place <= 40
    -- An evaluation writes its report itself.
    UNION ALL SELECT 41, 'corpus-audit report' WHERE EXISTS (FROM pairs WHERE NOT is_given)
), environments AS (
    SELECT environment, facts(any_value(package_versions), NULL) AS packages FROM page_lineage GROUP BY ALL
)
SELECT (SELECT coalesce(list(command ORDER BY place), []) FROM typed) AS commands,
    (SELECT greatest(0, count(*) - 40) FROM pairs) AS more_commands,
    (SELECT coalesce(list({'number': environment, 'packages': packages} ORDER BY environment), [])
        FROM environments) AS environments;
