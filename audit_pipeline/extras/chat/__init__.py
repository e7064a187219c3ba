"""Models that only talk: a ladder of prompts, how much of a document comes back, and held-out works for comparison.

What belongs here: entries of such models, prompts, requests and their answers, measures of answers, conclusions by
document, and outputs that others hand over. What does not: models that give probabilities (servers/,
extraction/).
"""
