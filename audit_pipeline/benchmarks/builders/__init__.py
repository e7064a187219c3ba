"""The builders of benchmarks, one per module: settings, inputs and drawn examples.

Every module holds one `BUILDER`, by which it is found. Code that several builders share belongs in
audit_pipeline/benchmarks/.
"""
