"""Detection of the language of a text.

The detector reads sequences of a few bytes. It is often wrong on 32 words, on lists of names and on code. So a single
mismatch is weak evidence. The shares of the languages on the two sides are reliable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

MOST_CHARACTERS = 1000


def detect_languages(texts: Sequence[str]) -> list[str]:
    """Return the most likely language of each text, from its first 1000 characters.

    The code is ISO 639-1, or ISO 639-3 if the language has no shorter code.
    """
    identifier = _load_identifier()
    return [str(identifier.classify(text[:MOST_CHARACTERS])[0]) for text in texts]


def is_same_language(declared: str, detected: str) -> bool:
    """Return True if both codes name one language, for example `zh-TW` (declared) and `zh` (detected)."""
    return declared.lower().replace("_", "-").split("-")[0] == detected.lower().split("-")[0]


@cache
def _load_identifier() -> LanguageIdentifier:
    # Any code can restrict the package's shared identifier to some languages. So this module loads its own.
    return LanguageIdentifier.from_model_file(MODEL_FILE)
