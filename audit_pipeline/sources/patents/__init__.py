"""Source of patents in Chinese, for PatentMIA (Zhang et al. 2024): one document per publication.

Each country is a collection. This package reads saved pages and exports, checks dates, groups the patents of a family,
and cleans the texts. The code in benchmarks/ cuts windows from the texts.
"""
