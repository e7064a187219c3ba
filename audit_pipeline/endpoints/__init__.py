"""Models behind an interface that gives log-probabilities of the tokens of a prompt."""
