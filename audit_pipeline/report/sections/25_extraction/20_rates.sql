-- Share of the benchmark and of its collections that the model reproduces word for word (table extraction_rates), for
-- audited and held-out documents separately.
--
-- documents: number of documents with a window
-- rates: per rule, the share of covered characters and the number of documents with a counted window
-- rule: rule by which suffixes count: probability (at least the threshold) | first_choices
-- threshold: smallest probability; null for first_choices
WITH listed AS (
    SELECT rates.model, rates.benchmark, rates.unit, rates.name, rates.side, max(rates.n_documents) AS documents,
        max(rates.characters) AS characters, list({
            'rule': rates.rule, 'threshold': rates.threshold,
            'covered': estimate(rates.covered, rates.covered_low, rates.covered_high),
            'n_reached': rates.n_reached,
            'reached': estimate(rates.reached, rates.reached_low, rates.reached_high)
        } ORDER BY rates.threshold NULLS LAST) AS rates
    FROM current_extraction_rates AS rates SEMI JOIN all_extraction_pairs USING (model, benchmark)
    WHERE rates.unit IN ('benchmark', 'collection')
    GROUP BY ALL
)
SELECT model, benchmark, unit, cut(name, 300) AS name, side, documents, characters, rates,
    count(*) OVER (PARTITION BY model, benchmark) AS in_all
FROM listed
QUALIFY row_number() OVER (PARTITION BY model, benchmark ORDER BY unit <> 'benchmark', side, name) <= 40
ORDER BY benchmark, unit <> 'benchmark', side, name;
