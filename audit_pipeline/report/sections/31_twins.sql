-- Tests of twins by detector and group, for the models of the page: the published versions against the secret versions.
--
-- benchmark: benchmark or secret file of the items
-- detector: detector; all: the detectors that were chosen beforehand, together
-- group: group of items; empty: all items
-- items: number of items with a score of every version
-- others: number of unpublished versions of these items
-- superiority: share of unpublished versions that the published version outscores, mean over items, with its 95% interval
-- p_value: p-value of the sum of ranks under the random draw
-- reason: reason why there is no p-value
SELECT twins.model, twins.benchmark, twins.detector, twins.parameters, twins."group", twins.items, twins.others,
    estimate(twins.superiority, twins.superiority_low, twins.superiority_high) AS superiority, twins.p_value, twins.reason,
    count(*) OVER () AS in_all
FROM current_twins AS twins SEMI JOIN page_tests USING (model, benchmark)
ORDER BY twins.model, twins.benchmark, twins."group" <> '', twins.detector <> 'all', twins.detector, twins."group"
LIMIT 40;
