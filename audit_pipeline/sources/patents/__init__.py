"""Patents in Chinese, for PatentMIA (Zhang et al. 2024): one document per publication, one collection per country.

What belongs here: pages, exports and a crawl, their dates, families and cleaning. What does not: windows (benchmarks/).
"""
