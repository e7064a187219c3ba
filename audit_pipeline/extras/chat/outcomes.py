"""What a request came to: an answer that can be measured, or a refusal, a filter, an end too early, nothing.

Phrases can be wrong both ways. So what is refused counts neither as given nor as absent, the phrase is kept with the
answer, and the report shows the phrases that occurred, with counts.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import product

from audit_pipeline.extras.chat.levelling import level_words
from audit_pipeline.tables import Outcome

_CANNOT = ("can't", "cannot", "won't", "am unable to", "'m unable to", "am not able to", "'m not able to")
_DO_IT = (
    *("assist", "complete", "comply", "continue", "fulfill", "give", "help"),
    *("provide", "quote", "recite", "repeat", "reproduce", "share", "write"),
)
REFUSAL_PHRASES = (
    *(f"i{'' if cannot[0] == chr(39) else ' '}{cannot} {verb}" for cannot, verb in product(_CANNOT, _DO_IT)),
    *("i'm sorry, but", "i am sorry, but", "i apologize, but", "i don't have access to", "i do not have access to"),
    *("as an ai language model", "as an ai assistant", "as a language model", "as a large language model"),
    *("protected by copyright", "copyrighted", "under copyright", "copyright restrictions"),
    *("tut mir leid, aber", "kann ich leider nicht", "ich kann leider", "urheberrechtlich geschützt"),
    *("je suis désolé, mais", "je ne peux pas fournir", "je ne peux pas reproduire", "je ne suis pas en mesure"),
    *("protégé par le droit d'auteur", "protégé par des droits d'auteur"),
    *("对不起,我", "抱歉,我", "很抱歉,", "我无法提供", "我不能提供", "我无法继续", "受版权保护"),
)
"""By one of these near its beginning an answer counts as refused; compared as :func:`_fold` writes them."""
_NEAR = 200
"""Characters within which such a phrase begins."""
_EXPLANATION = 60
"""Words that a refusal may go on for, to explain itself and to offer something else."""
_QUOTES = str.maketrans(dict.fromkeys("‘’‛ʼ`´", "'"))
_FILTERS = frozenset(
    ("content_filter", "content_filtered", "recitation", "safety", "blocklist", "prohibited_content", "spii", "other")
)
_CUTS = frozenset(("length", "max_tokens", "model_context_window_exceeded"))


def recognise_outcome(text: str, finish_reason: str | None, expected_words: int) -> tuple[Outcome, str | None]:
    """Return what a request came to, and of a refusal the phrase it was recognised by.

    ``expected_words``: with fewer an answer that was cut short, by its length or a filter, says nothing; with so many
    what came is measured. A refusal that goes on for so many words more than an explanation takes (60) is an answer:
    "I can't give all of it, but it begins …".
    """
    reason = (finish_reason or "").casefold()
    words = len(level_words(text))
    # Anthropic decides so itself.
    if reason == "refusal":
        return "refused", None
    if reason in _FILTERS and words < expected_words:
        return "filtered", None
    if words and (found := _find_phrase(text)) is not None:
        phrase, rest = found
        if len(level_words(rest)) < expected_words + _EXPLANATION:
            return "refused", phrase
    if reason in _CUTS and words < expected_words:
        return "cut", None
    return ("answered" if words else "empty"), None


def _find_phrase(text: str) -> tuple[str, str] | None:
    """Return the first phrase of a refusal, and what follows it."""
    folded = _fold(text)
    places = {phrase: folded.find(phrase, 0, _NEAR + len(phrase)) for phrase in REFUSAL_PHRASES}
    found = [(place, phrase) for phrase, place in places.items() if place >= 0]
    if not found:
        return None
    place, phrase = min(found)
    return phrase, folded[place + len(phrase) :]


def _fold(text: str) -> str:
    """``text`` in NFKC, case folded, with one kind of apostrophe and single spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text.translate(_QUOTES)).casefold())
    return re.sub(r"\s+", " ", folded).strip()
