"""One forward pass a text, and what it leaves behind for every detector."""
