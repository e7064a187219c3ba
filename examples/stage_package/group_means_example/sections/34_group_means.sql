-- The groups of texts with the highest mean scores, of the pairs that the page shows.
--
-- group: texts that belong together
-- detector: whose scores they are
-- texts: texts of the group with a score
-- mean_score: their mean
SELECT groups.model, groups.benchmark, groups."group", groups.detector, groups.texts, groups.mean_score,
    count(*) OVER () AS in_all
FROM current_group_means AS groups SEMI JOIN shown_pairs USING (model, benchmark)
ORDER BY mean_score DESC, "group" LIMIT 20;
