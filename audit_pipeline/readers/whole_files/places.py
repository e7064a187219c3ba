"""Where words are in the file that they were read from: page, chapter and paragraph, or line."""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter
from typing import TypeAlias

Places: TypeAlias = tuple[tuple[int, str], ...]
"""The character of a text at which each page or chapter begins, with its label, in order; none where the lines of the
text are the file's."""

NO_LINES: Places = ((0, ""),)
"""The places of a text whose file has neither pages nor chapters, and other lines than the text: a web page."""

_PAGE = "page "
_LONGEST_HEADING = 80
_EMPTY_LINES = re.compile(r"\n\s*\n")


def format_page_label(number: int) -> str:
    """What a page is called; ``number`` counts the file's pages from 1, whatever is printed on them."""
    return f"{_PAGE}{number}"


def format_chapter_label(number: int, heading: str, path: str, text: str) -> str:
    """What a chapter is called: ``number`` with its heading; with its ``path`` in the book where the heading is empty
    or long, or none of the words of ``text``."""
    is_findable = 0 < len(heading) <= _LONGEST_HEADING and heading in " ".join(text.split())
    return f"chapter {number} ({heading if is_findable else path})"


def describe_place(text: str, offset: int, places: Places) -> str:
    """Where the first word of ``text`` at or after the character ``offset`` is: ``page 12``, ``chapter 3 (The Hill),
    paragraph 5`` or ``line 240``, all counted from 1.

    Paragraphs are parted by empty lines and counted within the chapter. Before the first of the ``places`` lines are
    counted, which end in \\n.
    """
    word = next((place for place in range(offset, len(text)) if not text[place].isspace()), offset)
    number = bisect_right(places, word, key=itemgetter(0))
    if not number:
        return f"line {text.count(chr(10), 0, word) + 1}"
    begin, label = places[number - 1]
    if label.startswith(_PAGE):
        return label
    paragraph = f"paragraph {len(_EMPTY_LINES.findall(text, begin, word)) + 1}"
    return f"{label}, {paragraph}" if label else paragraph
