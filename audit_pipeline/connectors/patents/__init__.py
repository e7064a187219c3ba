"""Chinese patents: web crawls, exports, and their pages as text.

What belongs here: reading and cleaning of patents. What does not: making windows of them (benchmarks/).
"""
