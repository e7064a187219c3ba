"""What is done and what is to be done.

What belongs here: reading the state of the data folder, and deciding from it. What does not: the work itself.
"""
