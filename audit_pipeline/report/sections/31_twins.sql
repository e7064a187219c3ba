-- Tests of twins by detector and group, of the page's models: the published versions against the secret ones.
--
-- benchmark: the benchmark or secret file of the items
-- detector: the detector; all: those that were chosen beforehand, together
-- group: the group of items; empty: all items
-- items: items with a score of every version
-- others: versions of these items that were not published
-- superiority: mean over items of the share of them that the published one scores above, with its 95% interval
-- p_value: of the sum of ranks under the draw
-- reason: why there is none
SELECT twins.model, twins.benchmark, twins.detector, twins.parameters, twins."group", twins.items, twins.others,
    estimate(twins.superiority, twins.superiority_low, twins.superiority_high) AS superiority, twins.p_value, twins.reason,
    count(*) OVER () AS in_all
FROM current_twins AS twins SEMI JOIN page_tests USING (model, benchmark)
ORDER BY twins.model, twins.benchmark, twins."group" <> '', twins.detector <> 'all', twins.detector, twins."group"
LIMIT 40;
