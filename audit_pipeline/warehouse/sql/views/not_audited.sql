-- Columns without a comment are those of: coverage
CREATE VIEW not_audited AS
SELECT * FROM coverage WHERE status IN ('failed', 'stale', 'missing')
ORDER BY list_position(['failed', 'stale', 'missing'], status), model, benchmark;

COMMENT ON VIEW not_audited IS
    'pairs to be audited that are not done, worst first: failed, stale, missing; coverage has the other pairs';
