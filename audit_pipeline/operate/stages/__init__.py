"""The stages of an audit: each reads its input tables, does its work, and writes its output with a lineage row.

What belongs here: the order of read, compute, record and write, for one partition of one table. What does not: the
computations themselves (the domain packages), and when a stage is run (assets/ and operate/dagster/).
"""
