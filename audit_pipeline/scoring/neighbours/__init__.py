"""Neighbours of a text, for the detector `neighbour`: proposers with one interface, one module a way of making them."""
