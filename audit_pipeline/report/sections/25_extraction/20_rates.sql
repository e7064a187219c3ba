-- How much of the benchmark and of its collections the model gives word for word (table extraction_rates), audited and
-- held-out documents each by themselves.
--
-- documents: documents with a window
-- rates: by which suffixes count: how much of the characters they cover, and how many documents have such a window
-- rule: probability (of at least the threshold) | first_choices
-- threshold: the least probability; null for first_choices
WITH listed AS (
    SELECT rates.model, rates.benchmark, rates.unit, rates.name, rates.side, max(rates.n_documents) AS documents,
        max(rates.characters) AS characters, list({
            'rule': rates.rule, 'threshold': rates.threshold,
            'covered': estimate(rates.covered, rates.covered_low, rates.covered_high),
            'n_reached': rates.n_reached,
            'reached': estimate(rates.reached, rates.reached_low, rates.reached_high)
        } ORDER BY rates.threshold NULLS LAST) AS rates
    FROM current_extraction_rates AS rates SEMI JOIN extraction_pairs USING (model, benchmark)
    WHERE rates.unit IN ('benchmark', 'collection')
    GROUP BY ALL
)
SELECT model, benchmark, unit, cut(name, 300) AS name, side, documents, characters, rates,
    count(*) OVER (PARTITION BY benchmark) AS in_all
FROM listed
QUALIFY row_number() OVER (PARTITION BY benchmark ORDER BY unit <> 'benchmark', side, name) <= 40
ORDER BY benchmark, unit <> 'benchmark', side, name;
