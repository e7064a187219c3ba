"""Proposers of neighbours of a text, for the detector `neighbour`. Each module has a proposer."""
