"""Books: Project Gutenberg, Standard Ebooks, and EPUB files of one's own.

What belongs here: their catalogues, files, text. What does not: making excerpts of them (benchmarks/).
"""
