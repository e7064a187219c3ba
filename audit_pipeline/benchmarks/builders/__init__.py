"""The builders of benchmarks: settings, inputs and drawn examples.

Every module defines at least one `Builder`, by which it is found. Code that several builders share belongs in
audit_pipeline/benchmarks/.
"""
