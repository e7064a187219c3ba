"""The documentation: its pages, and what writes the parts of them that follow from the code (write_pages.py)."""
