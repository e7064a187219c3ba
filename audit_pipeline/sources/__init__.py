"""Where dated documents come from: one module per source, and what they share.

What belongs here: fetching or reading texts with their dates, licences and addresses, and keeping them as the
documents table. What does not: windows, labels and splits (benchmarks/).
"""
