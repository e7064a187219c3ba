"""The stages of an audit: each reads its input tables, does its work, and writes its output with a lineage row."""
