"""Source of Wikipedia's event pages with the day of their creation, for the dynamic WikiMIA.

This package fetches pages and dates from the API. Excerpts belong to benchmarks/.
"""
