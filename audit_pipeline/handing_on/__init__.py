"""A built benchmark as a data set that others can load: Parquet, a card, the hub.

What belongs here: what is handed on and in which form. What does not: building benchmarks (benchmarks/), reading what
is handed on (benchmarks/builders/labelled.py), and the command (cli/).
"""
