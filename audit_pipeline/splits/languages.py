"""The language that a text seems to be in.

A guess from character sequences of a few bytes: on 32 words, on lists of names and on code it is often wrong. So single
mismatches say little; that the two sides have different languages shows in their shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

MOST_CHARACTERS = 1000


def detect_languages(texts: Sequence[str]) -> list[str]:
    """The most likely language of each text's first 1000 characters, ISO 639-1 (639-3 where there is no shorter)."""
    identifier = _load_identifier()
    return [str(identifier.classify(text[:MOST_CHARACTERS])[0]) for text in texts]


def is_same_language(declared: str, detected: str) -> bool:
    """Return whether the codes name one language: `zh-TW` is declared, `zh` detected."""
    return declared.lower().replace("_", "-").split("-")[0] == detected.lower().split("-")[0]


@cache
def _load_identifier() -> LanguageIdentifier:
    # One of our own: the package's module-wide one can be restricted to some languages by anybody.
    return LanguageIdentifier.from_model_file(MODEL_FILE)
