"""Corpora to token-frequency tables."""
