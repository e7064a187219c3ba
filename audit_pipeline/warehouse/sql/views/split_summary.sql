-- Columns without a comment are those of: split_quality, lineage
CREATE VIEW split_summary AS
SELECT quality.benchmark, max(split_verdict) AS split_verdict,
    max(part) FILTER (measure = 'worst_blind_auroc') AS worst_control,
    max("value") FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc,
    max(ci_low) FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc_low,
    max(ci_high) FILTER (measure = 'worst_blind_auroc') AS worst_control_auroc_high,
    max("value") FILTER (measure = 'blind_auroc' AND part = 'words' AND side = 'both') AS words_auroc,
    max(ci_low) FILTER (measure = 'blind_auroc' AND part = 'words' AND side = 'both') AS words_auroc_low,
    max(ci_high) FILTER (measure = 'blind_auroc' AND part = 'words' AND side = 'both') AS words_auroc_high,
    max("value") FILTER (measure = 'blind_auroc' AND part = 'characters' AND side = 'both') AS characters_auroc,
    max(ci_low) FILTER (measure = 'blind_auroc' AND part = 'characters' AND side = 'both') AS characters_auroc_low,
    max(ci_high) FILTER (measure = 'blind_auroc' AND part = 'characters' AND side = 'both') AS characters_auroc_high,
    max("value") FILTER (measure = 'blind_auroc' AND part = 'length' AND side = 'both') AS length_auroc,
    max(ci_low) FILTER (measure = 'blind_auroc' AND part = 'length' AND side = 'both') AS length_auroc_low,
    max(ci_high) FILTER (measure = 'blind_auroc' AND part = 'length' AND side = 'both') AS length_auroc_high,
    max("value") FILTER (measure = 'blind_auroc' AND part = 'dates' AND side = 'both') AS dates_auroc,
    max(ci_low) FILTER (measure = 'blind_auroc' AND part = 'dates' AND side = 'both') AS dates_auroc_low,
    max(ci_high) FILTER (measure = 'blind_auroc' AND part = 'dates' AND side = 'both') AS dates_auroc_high,
    max(method) FILTER (measure = 'blind_auroc' AND part = 'words' AND side = 'both') AS words_method,
    max("value") FILTER (measure = 'ngram_overlap_mean' AND part = '7' AND side = 'nonmembers') AS overlap_7,
    max("value") FILTER (measure = 'ngram_overlap_mean' AND part = '13' AND side = 'nonmembers') AS overlap_13,
    max("value") FILTER (measure = 'near_duplicate_pairs' AND part = 'all' AND side = 'between')::BIGINT
        AS near_duplicate_pairs,
    max("value") FILTER (measure = 'language_mismatch' AND part = 'all' AND side = 'members') AS other_language_members,
    max("value") FILTER (measure = 'language_mismatch' AND part = 'all' AND side = 'nonmembers')
        AS other_language_nonmembers,
    max("value") FILTER (measure = 'texts' AND part = 'all' AND side = 'members')::BIGINT AS texts_members,
    max("value") FILTER (measure = 'texts' AND part = 'all' AND side = 'nonmembers')::BIGINT AS texts_nonmembers,
    max("value") FILTER (measure = 'groups' AND part = 'all' AND side = 'members')::BIGINT AS groups_members,
    max("value") FILTER (measure = 'groups' AND part = 'all' AND side = 'nonmembers')::BIGINT AS groups_nonmembers,
    max("value") FILTER (measure = 'uneven_collections' AND part = 'all' AND side = 'both')::BIGINT AS uneven_collections,
    max(quality.run_id) AS run_id, max(lineage.benchmark_digest) AS benchmark_digest,
    coalesce(max(lineage.benchmark_digest) = max(benchmarks.digest), TRUE) AS is_current
FROM split_quality AS quality
LEFT JOIN lineage ON lineage."table" = 'split_quality' AND lineage."partition" = quality.benchmark
    AND lineage.run_id = quality.run_id
LEFT JOIN benchmarks ON benchmarks.benchmark = quality.benchmark
GROUP BY quality.benchmark ORDER BY quality.benchmark;

COMMENT ON VIEW split_summary IS
    'differences of a benchmark''s two sides that are measured without a model, one row per benchmark; if no evaluated text is labelled, members are the audited texts and non-members the held-out texts';
COMMENT ON COLUMN split_summary.worst_control IS
    'blind control with the highest AUROC: words, characters, length or dates';
COMMENT ON COLUMN split_summary.worst_control_auroc IS
    'AUROC of worst_control; the highest of four AUROCs exceeds chance somewhat more often than the AUROC of a single control';
COMMENT ON COLUMN split_summary.words_auroc IS 'AUROC of the blind control of words, which decides the split verdict';
COMMENT ON COLUMN split_summary.characters_auroc IS 'AUROC of the blind control of characters';
COMMENT ON COLUMN split_summary.length_auroc IS 'AUROC of the blind control of lengths and compressibility';
COMMENT ON COLUMN split_summary.dates_auroc IS 'AUROC of the blind control of mentioned years and months';
COMMENT ON COLUMN split_summary.words_method IS 'method of the control of words, or the reason why it was not computed';
COMMENT ON COLUMN split_summary.overlap_7 IS 'mean share of a non-member''s 7-grams that occur in any member';
COMMENT ON COLUMN split_summary.overlap_13 IS 'mean share of a non-member''s 13-grams that occur in any member';
COMMENT ON COLUMN split_summary.near_duplicate_pairs IS 'number of near-duplicate pairs of a member and a non-member';
COMMENT ON COLUMN split_summary.other_language_members IS
    'share of members whose detected language differs from the declared language';
COMMENT ON COLUMN split_summary.other_language_nonmembers IS
    'share of non-members whose detected language differs from the declared language';
COMMENT ON COLUMN split_summary.texts_members IS 'number of members in the evaluation split';
COMMENT ON COLUMN split_summary.texts_nonmembers IS 'number of non-members in the evaluation split';
COMMENT ON COLUMN split_summary.groups_members IS 'number of groups of the members';
COMMENT ON COLUMN split_summary.groups_nonmembers IS 'number of groups of the non-members';
COMMENT ON COLUMN split_summary.uneven_collections IS
    'number of collections with unequal numbers of texts on the two sides';
COMMENT ON COLUMN split_summary.is_current IS
    'true if the benchmark is still the assessed build; if false, assess it again';
