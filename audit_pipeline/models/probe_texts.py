"""Fixed texts by which two tokenizers, two states of one model, and tokens with their answers are compared."""

from __future__ import annotations

TEXTS = (
    "The kettle had gone cold twice before anybody thought of the letter on the stairs.",
    "Wool is washed, carded and spun; only then does it go to the dyer, who asks for salt and patience.",
    "In 1874 the bridge cost 12,600 pounds, or about 3 pounds for each inhabitant of the valley.",
    "def area(width, height):\n    return width * height  # in square metres\n",
    "Der Zug nach Lübeck fährt um 7:45 Uhr; wer ihn verpasst, wartet bis zum Abend.",
)
"""Prose, numbers, code and another language. Another text is another state of every endpoint."""
COUNTING = " ".join(map(str, range(1, 41)))
"""Once it has begun, any model knows how it goes on: the token itself is the most likely at nearly all places."""
