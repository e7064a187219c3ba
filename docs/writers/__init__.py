"""Writers of pages, or parts of pages, from the code.

What belongs here: one module per page, which returns the page as text, and one for the figures. What does not: the
files (docs/write_pages.py), and the content (the declarations).
"""
