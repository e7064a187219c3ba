"""Event pages of a Wikipedia with the day on which each was created: what the dynamic WikiMIA is built from.

What belongs here: pages and their dates, from the API. What does not: excerpts (benchmarks/).
"""
