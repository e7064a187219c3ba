"""The report: what the warehouse says, in words, tables and pictures, for people.

What belongs here: its sections, words, pictures, rendering and the JSON copy. What does not: computing a metric
(statistics/), and SQL that users query (warehouse/).
"""
