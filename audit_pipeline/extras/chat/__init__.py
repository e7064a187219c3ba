"""Questions to chat models: how much of a document their answers contain, compared with held-out documents.

The package contains the configuration of chat models, the prompts, the requests and the measures of answers. It also
contains the results per document and the import of answers that other people requested. Models that return
probabilities belong to servers/ and extraction/.
"""
