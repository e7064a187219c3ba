-- The limits of every report.
--
-- title: limit in a few words
-- text: explanation of the limit
SELECT 1;
