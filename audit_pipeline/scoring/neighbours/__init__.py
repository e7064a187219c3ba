"""Proposers of neighbours (slightly changed copies of a text) for the detector `neighbour`."""
