"""Readers of files that are one document each: text, web pages, EPUB, PDF, Word.

This package contains one module per format, from its bytes to running text, and the detection of front and back matter.
Files of rows belong to readers/. The use of the text belongs to sources/.
"""
