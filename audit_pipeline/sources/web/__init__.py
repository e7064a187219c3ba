"""What the sources of the web share: one polite client, and how pages are encoded."""
