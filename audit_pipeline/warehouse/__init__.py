"""The warehouse: one DuckDB file built from the Parquet tables, read-only access to it, and exports.

The package only reads finished tables. It computes no findings.
"""
