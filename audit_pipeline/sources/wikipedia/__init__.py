"""Source of Wikipedia's event pages with the day of their creation, for a rebuilt and current WikiMIA.

This package fetches pages and dates from the API. The code in benchmarks/ cuts excerpts from the pages.
"""
