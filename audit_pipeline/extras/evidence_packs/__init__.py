"""An exhibit: a plan that is sealed before the model is run, and a pack that the other side can check.

What belongs here: plans and their timestamps, packing what an audit rests on, and verifying a pack. What does not: what
an audit computes (statistics/, extras/extraction/, pipeline/evaluate_pair.py), and how the report shows it (report/).
"""
