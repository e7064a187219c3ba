"""The warehouse: one DuckDB file built from the Parquet tables, read-only access to it, and exports.

What belongs here: everything that reads finished tables to show them. What does not: computing what they hold.
"""
