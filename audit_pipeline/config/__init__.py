"""The code that all configuration files share: the loader of named entries, validation, and messages about mistakes.

The keys of the entries are declared in the module config.py of each package, such as models/config.py.
"""
