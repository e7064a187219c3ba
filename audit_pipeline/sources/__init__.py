"""Sources of dated documents, and the code that they share.

This package fetches or reads texts with dates, licences and addresses, and stores them as the documents table. Windows,
labels and splits belong to benchmarks/.
"""
