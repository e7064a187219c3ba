"""Language models under audit: what is configured, where the files are, what they are, and how they are loaded.

What belongs here: entries of models.yaml, a model's files, identity, tokenizer and weights. What does not: running a
model (token_statistics/), asking a server for one (extras/servers/).
"""
