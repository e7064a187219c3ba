-- Number of documents that reach the threshold at each setting of the grid (table extraction_grid). The grid has every pair
-- of lengths at temperature 1 and the 40 likeliest tokens, and every way of drawing at the default lengths.
--
-- is_of_lengths: true if the setting belongs to the table of lengths
-- is_of_draws: true if the setting belongs to the table of ways of drawing
-- documents: number of audited documents with a suffix at the setting
-- reached: number of audited documents with a suffix of a probability of at least 0.001 (1 at temperature 0)
-- held_out: number of held-out documents with a suffix at the setting
-- held_out_reached: number of held-out documents with a suffix of this probability
WITH counted AS (
    SELECT grid.model, grid.benchmark, prefix_tokens, suffix_tokens, temperature, drawn_from,
        bool_or(is_named) AS is_named,
        count(*) FILTER (side = 'audited') AS documents,
        count(*) FILTER (side = 'audited' AND reached > 0) AS reached,
        count(*) FILTER (side = 'held_out') AS held_out,
        count(*) FILTER (side = 'held_out' AND reached > 0) AS held_out_reached
    FROM current_extraction_grid AS grid SEMI JOIN all_extraction_pairs USING (model, benchmark)
    WHERE places > 0 GROUP BY ALL
), marked AS (
    SELECT *, temperature = 1 AND drawn_from = 'top-k 40' AS is_of_lengths,
        bool_or(is_named) OVER (PARTITION BY model, benchmark, prefix_tokens, suffix_tokens) AS is_of_draws,
        count(*) OVER (PARTITION BY model, benchmark) AS in_all
    FROM counted
)
SELECT * FROM marked WHERE is_of_lengths OR is_of_draws
ORDER BY benchmark, nullif(prefix_tokens, 0) NULLS LAST, suffix_tokens, temperature, drawn_from;
