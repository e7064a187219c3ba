"""Patents in Chinese, for PatentMIA (Zhang et al. 2024): one document per publication, one collection per country.

What belongs here: pages and exports, their dates, families and cleaning. What does not: windows (benchmarks/).
"""
