-- Columns without a comment are those of: evaluations, lineage
CREATE VIEW leaderboard_history AS
WITH headline AS (
    SELECT model, benchmark, detector, parameters,
        max(value) FILTER (metric = 'auroc') AS auroc,
        max(ci_low) FILTER (metric = 'auroc') AS auroc_low,
        max(ci_high) FILTER (metric = 'auroc') AS auroc_high,
        max(value) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr,
        max(ci_low) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr_low,
        max(ci_high) FILTER (metric = 'tpr_at_5_fpr') AS tpr_at_5_fpr_high,
        max(value) FILTER (metric = 'tpr_at_1_fpr') AS tpr_at_1_fpr,
        max(ci_low) FILTER (metric = 'tpr_at_1_fpr') AS tpr_at_1_fpr_low,
        max(ci_high) FILTER (metric = 'tpr_at_1_fpr') AS tpr_at_1_fpr_high,
        max(value) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr,
        max(ci_low) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr_low,
        max(ci_high) FILTER (metric = 'fpr_at_95_tpr') AS fpr_at_95_tpr_high,
        max(value) FILTER (metric = 'auroc_margin') AS margin,
        max(ci_low) FILTER (metric = 'auroc_margin') AS margin_low,
        max(ci_high) FILTER (metric = 'auroc_margin') AS margin_high,
        max(n_members) AS n_members, max(n_nonmembers) AS n_nonmembers,
        max(n_members) + max(n_nonmembers) AS n, max(n_groups) AS n_groups, max(n_not_scored) AS n_not_scored,
        max(split_verdict) AS split_verdict, max(claim_level) AS claim_level, run_id
    FROM evaluations WHERE is_default GROUP BY ALL
), blind AS (SELECT * FROM headline WHERE detector = 'blind_control')
SELECT headline.model, headline.benchmark, headline.detector, headline.parameters,
    -- If a run stored no answer, a later run computed it. The id of that run is answer- and the id of the first run.
    (headline.model, headline.benchmark, headline.run_id, headline.detector, headline.parameters) IN (
        SELECT (model, benchmark, regexp_replace(run_id, '^answer-', ''), detector, parameters) FROM pair_answers
        WHERE detector IS NOT NULL
    ) AS is_headline,
    headline.auroc, headline.auroc_low, headline.auroc_high,
    headline.tpr_at_5_fpr, headline.tpr_at_5_fpr_low, headline.tpr_at_5_fpr_high,
    headline.tpr_at_1_fpr, headline.tpr_at_1_fpr_low, headline.tpr_at_1_fpr_high,
    headline.fpr_at_95_tpr, headline.fpr_at_95_tpr_low, headline.fpr_at_95_tpr_high,
    headline.n_members, headline.n_nonmembers, headline.n, headline.n_groups, headline.n_not_scored,
    blind.auroc AS blind_auroc, blind.auroc_low AS blind_auroc_low, blind.auroc_high AS blind_auroc_high,
    blind.tpr_at_5_fpr AS blind_tpr_at_5_fpr, blind.tpr_at_5_fpr_low AS blind_tpr_at_5_fpr_low,
    blind.tpr_at_5_fpr_high AS blind_tpr_at_5_fpr_high,
    split_summary.worst_control, split_summary.worst_control_auroc,
    headline.margin, headline.margin_low, headline.margin_high,
    headline.split_verdict, headline.claim_level, benchmarks.design_stated_by, headline.run_id,
    coalesce(runs.benchmark_digest = benchmarks.digest, TRUE) AS is_current,
    runs.finished_at, runs.is_current AS is_latest,
    headline.model IN (SELECT model FROM control_models) AS is_control
FROM headline JOIN runs
    ON runs."table" = 'evaluations' AND runs.model = headline.model AND runs.benchmark = headline.benchmark
    AND runs.run_id = headline.run_id
LEFT JOIN blind
    ON blind.model = headline.model AND blind.benchmark = headline.benchmark AND blind.run_id = headline.run_id
LEFT JOIN benchmarks ON benchmarks.benchmark = headline.benchmark
LEFT JOIN split_summary ON split_summary.benchmark = headline.benchmark
    AND split_summary.benchmark_digest = runs.benchmark_digest
WHERE headline.detector <> 'blind_control';

COMMENT ON VIEW leaderboard_history IS
    'the leaderboard of every run, including models of controls; for the leaderboard at a time use leaderboard_as_of(time)';
COMMENT ON COLUMN leaderboard_history.is_headline IS
    'true if the report''s answer of the pair uses this detector; false for all detectors if several were run and none was named';
COMMENT ON COLUMN leaderboard_history.is_control IS
    'true if the model was trained on this machine for a control; it checks the instrument, and the view leaderboard omits it';
COMMENT ON COLUMN leaderboard_history.auroc IS 'area under the ROC curve; 0.5 is chance';
COMMENT ON COLUMN leaderboard_history.tpr_at_5_fpr IS
    'share of members found while at most 5% of non-members are taken for members; if labels are unknown, audited texts count as members and held-out texts as non-members';
COMMENT ON COLUMN leaderboard_history.tpr_at_1_fpr IS
    'share of members found while at most 1% of non-members are taken for members; if labels are unknown, as for tpr_at_5_fpr';
COMMENT ON COLUMN leaderboard_history.fpr_at_95_tpr IS
    'share of non-members taken for members while at least 95% of members are found; if labels are unknown, as for tpr_at_5_fpr';
COMMENT ON COLUMN leaderboard_history.n IS 'number of texts with a score on both sides';
COMMENT ON COLUMN leaderboard_history.blind_auroc IS
    'AUROC of the blind control, a classifier that uses the texts and no model';
COMMENT ON COLUMN leaderboard_history.blind_tpr_at_5_fpr IS 'tpr_at_5_fpr of the blind control';
COMMENT ON COLUMN leaderboard_history.design_stated_by IS
    'person who states how the two sides were obtained, on which the claim level depends; null: Corpus Audit drew the sides itself';
COMMENT ON COLUMN leaderboard_history.worst_control IS 'blind control of the same build with the highest AUROC of four';
COMMENT ON COLUMN leaderboard_history.worst_control_auroc IS
    'AUROC of worst_control; the highest of four AUROCs exceeds chance somewhat more often than the AUROC of a single control';
COMMENT ON COLUMN leaderboard_history.is_current IS
    'true if the benchmark is still the audited build; if false, audit it again';
COMMENT ON COLUMN leaderboard_history.margin IS
    'AUROC minus the AUROC of the blind control on the same texts; the margin never raises the claim level';
COMMENT ON COLUMN leaderboard_history.finished_at IS
    'time at which the numbers of the run were complete; null: not in the ledger';
COMMENT ON COLUMN leaderboard_history.is_latest IS 'true if the run is the latest of this model on this benchmark';
