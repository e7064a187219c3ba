"""Wikipedia articles by creation date: the API, dumps, and Parquet files.

What belongs here: pages, dates, wikitext. What does not: making excerpts of them (benchmarks/).
"""
