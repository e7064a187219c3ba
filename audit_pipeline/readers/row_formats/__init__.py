"""Formats of files of rows: one module per format.

Each module defines ``FORMAT``: the suffixes of the format, and the function that opens a file. A new format needs only
a new module in this package, because all other code and the tests read these declarations.
"""
