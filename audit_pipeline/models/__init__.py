"""Language models under audit: their configuration, files, identity and loading.

This package contains entries of models.yaml, and a model's files, identity, tokenizer and weights. It does not run
models (token_statistics/) and does not query servers (extras/servers/).
"""
