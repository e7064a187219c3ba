"""Source of books with the date of their first publication: a user's folder, and Project Gutenberg.

This package reads books and their dates. The content of an EPUB belongs to readers/whole_files/.
"""
