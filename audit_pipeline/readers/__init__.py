"""Readers of users' files: rows and documents in every common format.

row_formats/ and whole_files/ contain one module per family of formats. The modules in this folder read bytes, choose
the text column of rows, parse labels and dates, and download packages. The code that uses rows and documents is in
sources/, benchmarks/ and the commands. store/files.py reads the project's own tables.
"""
