"""Language models under audit: what is configured, where the files are, what they are, and how they are loaded."""
