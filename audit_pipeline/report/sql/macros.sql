-- Expressions that many queries share: finite numbers, estimates, texts of bounded length, titles.

CREATE TEMP MACRO finite(x) AS CASE WHEN isfinite(x::DOUBLE) THEN x::DOUBLE END;

CREATE TEMP MACRO estimate(x, low_end, high_end, how := NULL) AS {
    'value': finite(x), 'low': finite(low_end), 'high': finite(high_end), 'method': how::VARCHAR
};

CREATE TEMP MACRO cut(words, most) AS
    CASE WHEN length(words) > most THEN left(words, most - 1) || '…' ELSE words END;

-- Titles are read once. As subqueries of the macros, they would add three joins wherever a query shows a title.
SET VARIABLE model_titles = (
    SELECT coalesce(map_from_entries(list((name, title))), MAP {}) FROM (
        SELECT named.name, coalesce(
            (SELECT title FROM configured_models WHERE name = named.name),
            (SELECT arg_max(card ->> '$.title', coalesce(first_loaded_at, '')) FROM models WHERE name = named.name)
        ) AS title
        FROM (SELECT name FROM configured_models UNION SELECT name FROM models) AS named
    ) WHERE title IS NOT NULL
);

SET VARIABLE benchmark_titles = (
    SELECT coalesce(map_from_entries(list((benchmark, title))), MAP {}) FROM configured_benchmarks
    WHERE title IS NOT NULL
);

CREATE TEMP MACRO model_title(of_model) AS coalesce(
    getvariable('model_titles')[of_model],
    CASE WHEN starts_with(of_model, '/') THEN parse_filename(rtrim(of_model, '/')) ELSE of_model END
);

CREATE TEMP MACRO benchmark_title(of_benchmark) AS
    coalesce(getvariable('benchmark_titles')[of_benchmark], of_benchmark);

CREATE TEMP MACRO refused(status, reason) AS
    CASE WHEN status <> 'ok' THEN coalesce(nullif(reason, ''), 'refused') END;
