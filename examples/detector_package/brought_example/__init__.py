"""A package of somebody else's, with a detector and a source: what docs/adding-a-detector.md describes."""
