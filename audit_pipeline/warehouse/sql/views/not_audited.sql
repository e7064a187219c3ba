CREATE VIEW not_audited AS
SELECT * FROM coverage WHERE status <> 'done'
ORDER BY list_position(['failed', 'not_applicable', 'stale', 'missing', 'done'], status), model, benchmark;

COMMENT ON VIEW not_audited IS
    'the pairs that are not done, worst first: failed, not_applicable, stale, missing';
