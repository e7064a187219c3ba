"""Documents from the web: Wikipedia, patents, books. No other package imports this one.

What belongs here: fetching and parsing of one kind of document, each a package of its own, loaded when a source of its
kind is named. What does not: sources that need nothing but local files or the package index (sources/).
"""
