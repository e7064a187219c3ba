-- Groups of unlabelled texts by the mean of their scores, if there are no texts to compare them with. These means have no
-- error rate.
--
-- place: rank by the mean score
-- n_texts: number of texts of the group
WITH compared AS (
    SELECT model, benchmark FROM all_evidence_settings
    WHERE is_default AND detector <> 'blind_control' AND auroc.value IS NOT NULL
    UNION SELECT tests.model, tests.benchmark
    FROM current_group_tests AS tests JOIN all_evidence_pairs AS pairs USING (model, benchmark)
    WHERE (tests.detector = pairs.detector AND tests.parameters = pairs.parameters)
        OR (pairs.detector IS NULL AND tests.is_default)
    UNION SELECT model, benchmark
    FROM current_contamination_rates SEMI JOIN all_evidence_pairs USING (model, benchmark, detector, parameters)
), scored AS (
    SELECT groups.* FROM group_scores AS groups SEMI JOIN all_evidence_pairs USING (model, benchmark, detector, parameters)
    ANTI JOIN compared USING (model, benchmark)
    SEMI JOIN (FROM all_evidence_pairs WHERE is_current) AS fresh USING (model, benchmark)
    QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY mean_score DESC, "group") <= 40
)
SELECT model, benchmark, cut("group", 300) AS name, rank_in_benchmark AS place, texts AS n_texts,
    finite(mean_score) AS mean, finite(median_score) AS median, finite(lowest_score) AS lowest,
    finite(highest_score) AS highest
FROM scored
WHERE isfinite(mean_score) AND isfinite(median_score) AND isfinite(lowest_score) AND isfinite(highest_score)
ORDER BY mean_score DESC, "group";
