"""The warehouse: one DuckDB file built from the Parquet tables, read-only access to it, and exports.

The package reads finished tables to show them. It computes no findings.
"""
