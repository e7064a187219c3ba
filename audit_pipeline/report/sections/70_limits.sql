-- The limits of what any report can say.
--
-- title: the limit, in a few words
-- text: what it means
SELECT 1;
