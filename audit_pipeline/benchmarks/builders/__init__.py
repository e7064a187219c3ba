"""The builders of benchmarks, one a module: what an entry may say, what is read, and how examples are drawn of it.

What belongs here: modules that each hold one `BUILDER`, which is how they are found. What does not: what several of
them share (audit_pipeline/benchmarks/).
"""
