"""One forward pass a text, and the statistics that every detector reads."""
