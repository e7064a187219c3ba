"""A package of somebody else's, with an asset: what docs/adding-an-asset.md describes."""
