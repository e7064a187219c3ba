"""Reading the files of config/: the loader of named entries, suggestions for misspelt names, and lists of problems.

This package has the code that all files share. The config.py of each domain declares the keys of its entries.
"""
