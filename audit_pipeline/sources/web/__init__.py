"""Parts that the sources on the web share: the polite client, and the encodings of pages."""
