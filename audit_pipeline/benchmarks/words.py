"""What a word is: the unit in which a benchmark's lengths are counted."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

UnitName = Literal["whitespace", "jieba"]

_LATIN_END = re.compile(r"[A-Za-z0-9]$")
_LATIN_START = re.compile(r"^[A-Za-z0-9]")
# jieba divides texts at all other characters. Its time grows with the square of a run of unknown characters, so a run
# without any other character, which no usual text has, is cut into pieces.
_LONG_RUN = re.compile(r"[\u4E00-\u9FD5a-zA-Z0-9+#&._%-]{2000}")


@dataclass(frozen=True)
class WordUnit:
    """A way of counting words. ``split`` gives a text's words, none of them blank; ``join`` makes words a text."""

    name: UnitName
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


def get_word_unit(name: UnitName) -> WordUnit:
    """The unit called ``name``.

    `whitespace`: runs of characters between white space, joined by single spaces as in WikiMIA: where a line was
    broken in the document says nothing about membership and must not be there to learn from.
    `jieba`: Chinese words as jieba segments them, joined without spaces, but for one between two Latin words.
    """
    if name == "whitespace":
        return WordUnit(name, str.split, " ".join)
    return WordUnit(name, _load_jieba_splitter(), _join_chinese)


def _load_jieba_splitter() -> Callable[[str], list[str]]:
    import jieba  # noqa: PLC0415 - it takes a second

    # It prints on standard error how long its dictionary took to load.
    jieba.setLogLevel(logging.WARNING)

    def split(text: str) -> list[str]:
        ends = [run.end() for run in _LONG_RUN.finditer(text)]
        pieces = (text[begin:end] for begin, end in pairwise([0, *ends, len(text)]))
        words = chain.from_iterable(map(jieba.lcut, pieces))
        return [word for word in words if word.strip()]

    return split


def _join_chinese(words: Sequence[str]) -> str:
    pieces: list[str] = []
    for word in words:
        if pieces and _LATIN_END.search(pieces[-1]) and _LATIN_START.search(word):
            pieces.append(" ")
        pieces.append(word)
    return "".join(pieces)
