"""The software-defined assets of Corpus Audit and their checks: wiring only, one file per group."""
