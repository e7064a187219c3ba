-- How values and intervals were computed.
--
-- method: how some of the values were computed
SELECT model, benchmark, method FROM evidence_evaluations WHERE is_default AND isfinite(value)
GROUP BY ALL ORDER BY min(place);
