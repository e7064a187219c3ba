"""An example of a package with a detector and a source (docs/adding-a-detector.md)."""
