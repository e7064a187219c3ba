-- Expressions that many queries share: finite numbers, estimates, texts of bounded length, titles.

CREATE TEMP MACRO finite(x) AS CASE WHEN isfinite(x::DOUBLE) THEN x::DOUBLE END;

CREATE TEMP MACRO estimate(x, low_end, high_end, how := NULL) AS {
    'value': finite(x), 'low': finite(low_end), 'high': finite(high_end), 'method': how::VARCHAR
};

CREATE TEMP MACRO cut(words, most) AS
    CASE WHEN length(words) > most THEN left(words, most - 1) || '…' ELSE words END;

CREATE TEMP MACRO model_title(of_model) AS coalesce(
    (SELECT title FROM configured_models WHERE name = of_model),
    (SELECT arg_max(card ->> '$.title', coalesce(first_loaded_at, '')) FROM models WHERE name = of_model),
    CASE WHEN starts_with(of_model, '/') THEN parse_filename(rtrim(of_model, '/')) ELSE of_model END
);

CREATE TEMP MACRO benchmark_title(of_benchmark) AS
    coalesce((SELECT title FROM configured_benchmarks WHERE benchmark = of_benchmark), of_benchmark);

CREATE TEMP MACRO refused(status, reason) AS
    CASE WHEN status <> 'ok' THEN coalesce(nullif(reason, ''), 'refused') END;
