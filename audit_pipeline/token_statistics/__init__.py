"""One forward pass a text, and the statistics that every detector reads.

What belongs here: tokens and windows, the cache, running a model on what the cache lacks. What does not: a model's
files (models/), servers (extras/servers/), which statistics a detector needs (scoring/).
"""
