"""Books with the day or year of their first publication: a folder of the user's own, and Project Gutenberg.

What belongs here: reading them, and their dates. What does not: the inside of an EPUB (readers/whole_files/).
"""
