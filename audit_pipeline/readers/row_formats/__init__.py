"""Formats of files of rows: one module per format.

``FORMAT`` of each module declares its suffixes and its function that opens a file. A new format needs only a new module
in this package, because names, messages, folders and tests follow from the declarations.
"""
