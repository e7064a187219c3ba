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
    -- An answer that was lacking is concluded by a run of its own, which is named after that of the findings.
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
    'the leaderboard of every run there ever was, of models of controls too; what was known when: leaderboard_as_of(time)';
COMMENT ON COLUMN leaderboard_history.is_headline IS
    'whether this detector answers for the pair in the report; where several were run and none was named, none does';
COMMENT ON COLUMN leaderboard_history.is_control IS
    'whether the model was trained here, for a control: it checks the instrument, and leaderboard leaves it out';
COMMENT ON COLUMN leaderboard_history.auroc IS 'area under the ROC curve; 0.5 is chance';
COMMENT ON COLUMN leaderboard_history.tpr_at_5_fpr IS
    'members (audited texts, where labels are unknown) found while at most 5% of non-members are taken for them';
COMMENT ON COLUMN leaderboard_history.tpr_at_1_fpr IS 'the same while at most 1% are';
COMMENT ON COLUMN leaderboard_history.fpr_at_95_tpr IS
    'non-members taken for members (audited texts, where labels are unknown) while at least 95% of these are found';
COMMENT ON COLUMN leaderboard_history.n IS 'texts with a score, both sides together';
COMMENT ON COLUMN leaderboard_history.blind_auroc IS
    'AUROC of a classifier that never sees the model: what the texts alone give away';
COMMENT ON COLUMN leaderboard_history.blind_tpr_at_5_fpr IS
    'the same as tpr_at_5_fpr of that classifier';
COMMENT ON COLUMN leaderboard_history.design_stated_by IS
    'who says how the two sides came about, on which the claim level rests; null where it follows from how they were drawn';
COMMENT ON COLUMN leaderboard_history.worst_control IS
    'of the four blind controls of the same build, the one with the highest AUROC';
COMMENT ON COLUMN leaderboard_history.worst_control_auroc IS
    'its AUROC; the highest of four, so above chance a little more often than each';
COMMENT ON COLUMN leaderboard_history.is_current IS
    'whether the benchmark is still the build that was audited; if not, audit it again';
COMMENT ON COLUMN leaderboard_history.margin IS 'AUROC minus the blind control''s, paired; never raises the claim level';
COMMENT ON COLUMN leaderboard_history.finished_at IS
    'when the run''s numbers were ready; null where no lineage entry says so';
COMMENT ON COLUMN leaderboard_history.is_latest IS 'whether the run is the latest of this model on this benchmark';
