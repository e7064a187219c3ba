"""What the pipeline produces: its tables and files, where they stand, and how they are written, read and compared.

What belongs here: columns, keys, paths, digests, lineage rows, outcomes. What does not: any computation of a number,
and anything of ours but errors.
"""
