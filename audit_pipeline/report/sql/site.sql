-- Tables that all pages share. They are read once, because a view can take as long for one model as for all.

CREATE TEMP TABLE gaps AS
FROM lineage_gaps WHERE is_left_out;

CREATE TEMP TABLE covered AS FROM coverage;

CREATE TEMP TABLE instrument_checks AS
SELECT control, benchmark, detector, parameters,
    estimate(exposed_auroc, exposed_low, exposed_high) AS exposed,
    estimate(twin_auroc, twin_low, twin_high) AS twin,
    estimate(blind_auroc, blind_low, blind_high) AS blind,
    row_number() OVER (ORDER BY control, benchmark, exposed_auroc DESC NULLS LAST, detector) AS place
FROM instrument_check;

CREATE TEMP TABLE occurrences AS
-- Per control model and number of readings: the texts with a passage of p >= 0.001.
SELECT control, role, benchmark, occurrences, documents, n_reached,
    estimate(reached, reached_low, reached_high) AS reached, median_log_p / ln(10) AS log10_p, finished_at
FROM dose_response WHERE rule = 'probability';

CREATE TEMP TABLE all_changes AS
FROM changes_since_last_audit WHERE change NOT IN ('unchanged', 'first audit');

CREATE TEMP TABLE all_older_models AS FROM older_model_control;

CREATE TEMP TABLE all_releases AS FROM model_timeline;

CREATE TEMP TABLE all_costs AS FROM cost WHERE is_latest;

CREATE TEMP TABLE ledger AS FROM multiplicity_ledger;

CREATE TEMP TABLE all_deviations AS FROM plan_deviations;

CREATE TEMP TABLE all_rivals AS FROM rival_explanations;

CREATE TEMP TABLE all_series_findings AS FROM series_findings;

CREATE TEMP TABLE all_series_documents AS FROM series_documents;

CREATE TEMP TABLE all_splits AS FROM split_summary;

CREATE TEMP TABLE threshold_decisions AS
-- The thresholds of every detector and setting that have a measured false-positive rate.
SELECT model, benchmark, detector, parameters, list({
    'rule': rule, 'alpha': alpha, 'n_nonmembers': n_nonmembers, 'fpr': estimate(fpr, fpr_low, fpr_high)
} ORDER BY rule_place(rule, alpha), rule, alpha) AS decisions
FROM current_decisions WHERE status = 'ok' AND alpha IS NOT NULL AND fpr IS NOT NULL GROUP BY ALL;
