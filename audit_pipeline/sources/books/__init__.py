"""Source of books with the date of their first publication: a user's folder, and Project Gutenberg.

This package reads books and their dates. The code in readers/whole_files/ extracts the text of an EPUB.
"""
