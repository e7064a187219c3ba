"""Holds what need not be read first: each package brings its stage, its commands or its back end."""
