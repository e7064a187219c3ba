"""Reading files that are one document each: text, web pages, EPUB, PDF, Word.

What belongs here: a module a format, from its bytes to running text, and what is known of front and back matter. What
does not: files of rows (readers/), and what becomes of the text (sources/).
"""
