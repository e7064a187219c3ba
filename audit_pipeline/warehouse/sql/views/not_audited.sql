-- Columns without a comment are those of: coverage
CREATE VIEW not_audited AS
SELECT * FROM coverage WHERE status IN ('failed', 'stale', 'missing')
ORDER BY list_position(['failed', 'stale', 'missing'], status), model, benchmark;

COMMENT ON VIEW not_audited IS
    'the pairs that are to be audited and are not done, worst first: failed, stale, missing; the others are in coverage';
