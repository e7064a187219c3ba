"""Reading what users hand over: rows out of files of every usual format.

What belongs here: a module a format, the bytes below them, what a row is, and how labels are spelt. What does not: what
the rows mean (sources, benchmarks, the commands), and the project's own tables (store/files.py).
"""
