"""Formats of files of rows: one module per family of formats.

Each module defines ``FORMATS``: for each format its suffixes, and the function that opens a file. A new format needs
only a new module in this package, because all other code and the tests read these declarations.
"""
