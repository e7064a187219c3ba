"""Reading of the files in config/: the loader of named entries, suggestions for misspelt names, and lists of problems.

This package has the code that all configuration files share. The keys of the entries are declared in the module
config.py of each package, such as models/config.py.
"""
