"""Source of patents in Chinese, for PatentMIA (Zhang et al. 2024): one document per publication.

Each country is a collection. This package reads pages and exports, dates and families, and cleans the texts. Windows
belong to benchmarks/.
"""
