"""An example of a package with an asset (docs/adding-an-asset.md)."""
