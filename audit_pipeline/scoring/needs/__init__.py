"""What detectors need apart from a text's own pass, a provider each, in a module of the need's name.

What belongs here: for one need, whether it can be met, what it runs, and what of it detectors get for a text. What does
not: the order in which a session goes through them (scoring/session.py), passes and their cache (token_statistics/).
"""
