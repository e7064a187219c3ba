"""The providers of requirements (``Need``): data that detectors read besides the statistics of the text pass.

A provider determines whether a requirement is met, computes the missing data and reads it for each text. The module
scoring/session.py calls the providers in order. Passes and their cache belong to token_statistics/.
"""
