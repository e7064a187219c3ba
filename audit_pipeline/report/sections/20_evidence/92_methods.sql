-- The methods of values and intervals.
--
-- method: method of some of the values
SELECT model, benchmark, method FROM all_evidence_evaluations WHERE is_default AND isfinite(value)
GROUP BY ALL ORDER BY min(place);
