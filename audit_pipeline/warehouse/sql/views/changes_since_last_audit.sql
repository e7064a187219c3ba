-- Columns without a comment are those of: leaderboard_history
CREATE VIEW changes_since_last_audit AS
SELECT * FROM changes_since(NULL);

COMMENT ON VIEW changes_since_last_audit IS
    'every finding beside that of the run before on the same model and benchmark, and what had changed by then';
COMMENT ON COLUMN changes_since_last_audit.change IS
    'first audit | new detector | no longer there | changed (AUROC, claim level or split verdict) | unchanged';
COMMENT ON COLUMN changes_since_last_audit.previous_auroc IS 'the AUROC of the run before';
COMMENT ON COLUMN changes_since_last_audit.difference IS 'AUROC now minus AUROC then';
COMMENT ON COLUMN changes_since_last_audit.left_interval IS
    'whether the AUROC now lies outside of the interval of then; null where there was none';
COMMENT ON COLUMN changes_since_last_audit.previous_claim_level IS 'the claim level of the run before';
COMMENT ON COLUMN changes_since_last_audit.previous_split_verdict IS 'the split verdict of the run before';
COMMENT ON COLUMN changes_since_last_audit.previous_run_id IS 'the run before; null: there is none';
COMMENT ON COLUMN changes_since_last_audit.previous_finished_at IS 'when its numbers were ready';
COMMENT ON COLUMN changes_since_last_audit.benchmark_changed IS
    'whether it was another build of the benchmark: AUROCs then are of other texts; null without a run before';
COMMENT ON COLUMN changes_since_last_audit.model_changed IS
    'whether model or tokenizer had other files; null without a run before';
COMMENT ON COLUMN changes_since_last_audit.code_changed IS
    'whether scores or evaluation had another code version; null without a run before';
COMMENT ON COLUMN changes_since_last_audit.inputs_changed IS
    'every input of another data version: examples, scores, token statistics, reference model, token frequencies';
COMMENT ON COLUMN changes_since_last_audit.packages_changed IS 'installed packages of another version';
