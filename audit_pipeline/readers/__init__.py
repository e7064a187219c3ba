"""Readers of users' files: rows and documents in every common format.

This package contains one module per format, the reading of bytes, rows with their texts, and the spellings of labels
and dates. The meaning of rows belongs to sources/, benchmarks/ and the commands. The project's own tables belong to
store/files.py.
"""
