"""Readers of files that are one document each: text, web pages, EPUB, PDF, Word.

This package extracts the running text of each format, and detects front and back matter. Files of rows are read by
readers/row_formats/. The code that uses the texts is in sources/.
"""
