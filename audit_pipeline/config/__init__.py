"""Reading the files of config/: one loader of named entries, hints at misspelt names, all problems at once.

What belongs here: what is the same for every file, and what must hold between files. What does not: what an entry may
hold (the config.py of each domain).
"""
