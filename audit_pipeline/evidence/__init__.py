"""Evidence: how well scores separate members from non-members, how sure that is, and what may be claimed from it.

What belongs here: metrics, intervals, controls and claim levels, from tables of scores and examples. What does not:
computing a score (detectors/), and showing results (warehouse/).
"""
