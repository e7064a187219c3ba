"""The client that the sources on the web share."""
