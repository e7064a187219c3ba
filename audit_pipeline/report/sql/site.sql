-- What is looked at from every page: read once, for a view can take as long for one model as for all.

CREATE TEMP TABLE gaps AS
FROM lineage_gaps WHERE rows > 0 OR starts_with(what, 'a damaged');

CREATE TEMP TABLE covered AS FROM coverage;

CREATE TEMP TABLE instrument AS
SELECT control, benchmark, detector, parameters,
    estimate(exposed_auroc, exposed_low, exposed_high) AS exposed,
    estimate(twin_auroc, twin_low, twin_high) AS twin,
    estimate(blind_auroc, blind_low, blind_high) AS blind,
    detector = headline_detector(list(detector) OVER (PARTITION BY control), NULL) IS TRUE AS answers,
    row_number() OVER (ORDER BY control, benchmark, exposed_auroc DESC NULLS LAST, detector) AS place
FROM instrument_check;

CREATE TEMP TABLE occurrences AS
-- Of a control's model: how many of the texts that its exposed model read so often have a passage of p >= 0.001.
SELECT controls.control, controls.role, rates.benchmark, rates.name::BIGINT AS occurrences, rates.n_documents,
    rates.n_reached, estimate(rates.reached, rates.reached_low, rates.reached_high) AS reached,
    rates.median_log_p / ln(10) AS log10_p
FROM current_extraction_rates AS rates JOIN control_models AS controls USING (model)
WHERE rates.unit = 'occurrences' AND rates.side = 'audited' AND rates.rule = 'probability' AND rates.threshold = 0.001;

CREATE TEMP TABLE extraction_counts AS
-- What every model gives word for word of the documents of every benchmark that it was asked to go on with.
SELECT *, extraction_words(model_title, benchmark_title, documents, reproduced, held_out, held_out_reproduced, set_apart, reason) AS said FROM (
    SELECT model, benchmark, run_id, model_title(model) AS model_title, benchmark_title(benchmark) AS benchmark_title,
        count(*) FILTER (side = 'audited' AND windows > 0) AS documents,
        count(*) FILTER (side = 'audited' AND claim = 'reproduced') AS reproduced,
        count(*) FILTER (side = 'held_out' AND windows > 0) AS held_out,
        count(*) FILTER (side = 'held_out' AND claim = 'reproduced') AS held_out_reproduced,
        count(*) FILTER (windows = 0) AS without_window, max(reason) AS reason,
        sum(windows)::BIGINT AS windows, sum(every.set_apart)::BIGINT AS set_apart,
        sum(predictable)::BIGINT AS predictable, any_value(prefix_tokens) AS prefix_tokens,
        any_value(suffix_tokens) AS suffix_tokens, any_value(stride) AS stride
    FROM current_document_memorisation AS every GROUP BY ALL
);

CREATE TEMP TABLE all_changes AS
FROM changes_since_last_audit WHERE change NOT IN ('unchanged', 'first audit');

CREATE TEMP TABLE all_older_models AS FROM older_model_control;

CREATE TEMP TABLE all_releases AS FROM model_timeline;

CREATE TEMP TABLE all_costs AS FROM cost WHERE is_latest;

CREATE TEMP TABLE ledger AS FROM multiplicity_ledger;
