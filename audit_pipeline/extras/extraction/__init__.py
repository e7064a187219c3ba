"""What a model can be made to say of a document: probabilistic extraction.

What belongs here: where windows of a document begin, running a model on them, and what is concluded of a document. What
does not: the forward pass (token_statistics/), commands and what they print (cli/).
"""
