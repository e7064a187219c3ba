"""Arrays in, numbers out: AUROC, TPR, their intervals, rates, claim levels.

What belongs here: pure functions of labels and scores. What does not: tables (evidence/), texts (separability/),
models.
"""
