-- Columns without a comment are those of: leaderboard_history
CREATE VIEW changes_since_last_audit AS
SELECT * FROM changes_since(NULL);

COMMENT ON VIEW changes_since_last_audit IS
    'every finding, the finding of the previous run on the same model and benchmark, and other changes between both runs';
COMMENT ON COLUMN changes_since_last_audit.change IS
    'first audit | new detector | no longer there | changed (AUROC, claim level or split verdict) | unchanged';
COMMENT ON COLUMN changes_since_last_audit.previous_auroc IS 'AUROC of the previous run';
COMMENT ON COLUMN changes_since_last_audit.difference IS 'current AUROC minus previous AUROC';
COMMENT ON COLUMN changes_since_last_audit.left_interval IS
    'true if the current AUROC lies outside of the previous interval; null: no previous interval';
COMMENT ON COLUMN changes_since_last_audit.previous_claim_level IS 'claim level of the previous run';
COMMENT ON COLUMN changes_since_last_audit.previous_split_verdict IS 'split verdict of the previous run';
COMMENT ON COLUMN changes_since_last_audit.previous_run_id IS 'previous run; null: no previous run';
COMMENT ON COLUMN changes_since_last_audit.previous_finished_at IS
    'time at which the numbers of the previous run were complete';
COMMENT ON COLUMN changes_since_last_audit.benchmark_changed IS
    'true if the previous run used another build of the benchmark, so that its AUROCs describe other texts; null: no previous run';
COMMENT ON COLUMN changes_since_last_audit.model_changed IS
    'true if the files of the model or the tokenizer changed; null: no previous run';
COMMENT ON COLUMN changes_since_last_audit.code_changed IS
    'true if the code version of scores or evaluation changed; null: no previous run';
COMMENT ON COLUMN changes_since_last_audit.inputs_changed IS
    'inputs with another data version: examples, scores, token statistics, reference model, token frequencies';
COMMENT ON COLUMN changes_since_last_audit.packages_changed IS 'installed packages with another version';
