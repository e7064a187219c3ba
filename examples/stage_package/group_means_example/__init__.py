"""A package of somebody else's, with a stage: what docs/adding-a-stage.md describes."""
