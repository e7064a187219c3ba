"""The words of a document, a prompt or an answer, levelled so that printing and typing make no difference.

A word is what extras/corpora/words.py says. So these come out equal: upper and lower case, ligatures, full width forms,
other forms of a letter (NFKC), composed and decomposed accents. Quotes, apostrophes, dashes, hyphens, punctuation and
white space separate words and are no words: ``don't``, ``don’t`` and ``don t`` are the same two words, ``well-known``
is ``well known``. Two things are levelled here on top of that:

- a soft hyphen (U+00AD) vanishes;
- a hyphen (``-``, U+2010, U+2011, U+00AD) between a letter and a line break, with a letter as the next line's first
  character but white space, vanishes together with the line break: ``exam-⏎ple`` is the word ``example``.

What is not levelled: an accent is not dropped (``cafe`` is not ``café``); ``well-⏎known`` becomes ``wellknown``, which
is not ``well-known``; digits are not joined over a line break (``1914-⏎18`` is two words); a hyphen before an empty
line joins nothing; a letter whose lower case is two letters keeps its case (``ß`` is not ``ss``); characters of no
width other than U+00AD separate; spelling and numerals are left as they are.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

from audit_pipeline.extras.corpora.words import Offsets, Places, Words, split_texts

_HYPHENS = re.compile("[-\u2010\u2011\u00ad][^\\S\r\n]*(?:\r\n?|\n)[^\\S\r\n]*|\u00ad")
_SOFT = "\u00ad"


def level_words(text: str) -> Words:
    """Return the words of ``text`` in order: hashes, first characters and ends after the last (int64)."""
    spans = (_find_dropped(text, *match.span()) for match in _HYPHENS.finditer(text))
    dropped = [span for span in spans if span is not None]
    bounds = [0, *(bound for span in dropped for bound in span), len(text)]
    kept = list(zip(bounds[::2], bounds[1::2], strict=True))
    words, _ = split_texts(["".join(text[start:end] for start, end in kept)])
    shifts = np.cumsum([0, *(end - start for start, end in dropped)])
    begins = np.array([start for start, _ in kept]) - shifts

    def to_original(places: Offsets) -> Places:
        original: Places = places + shifts[np.searchsorted(begins, places, side="right") - 1]
        return original

    return Words(words.hashes, to_original(words.starts), to_original(words.ends - 1) + 1)


def _find_dropped(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return what vanishes of a hyphen and the white space after it: all, the soft hyphen alone, or nothing (None)."""
    if end - start > 1 and _is_letter(text[start - 1 : start]) and _is_letter(text[end : end + 1]):
        return start, end
    return (start, start + 1) if text[start] == _SOFT else None


def _is_letter(character: str) -> bool:
    """Return whether it is a letter, or a mark, which belongs to the letter before it; the empty text is none."""
    return character != "" and unicodedata.category(character)[0] in "LM"
