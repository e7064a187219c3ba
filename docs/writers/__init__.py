"""What writes pages, or parts of them, out of the code.

What belongs here: one module a page, which gives the page as text, and one for the figures. What does not: which files
they are written to (docs/write_pages.py), what the pages tell (the declarations themselves).
"""
