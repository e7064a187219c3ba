"""The software-defined assets of Corpus Audit and their checks: those of the stages, and warehouse and report."""
