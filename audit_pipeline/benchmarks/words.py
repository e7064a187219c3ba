"""Word units: the definitions of a word for the lengths of a benchmark's texts."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

UnitName = Literal["whitespace", "jieba"]

_LATIN_END = re.compile(r"[A-Za-z0-9]$")
_LATIN_START = re.compile(r"^[A-Za-z0-9]")
# jieba splits texts at all characters except these. Its time grows with the square of the length of an unbroken
# sequence of them. So long sequences are cut into pieces. They do not occur in usual texts.
_LONG_RUN = re.compile(r"[\u4E00-\u9FD5a-zA-Z0-9+#&._%-]{2000}")


@dataclass(frozen=True)
class WordUnit:
    """A definition of a word: how a text is split into words, and how words are joined to a text.

    Attributes:
        name: The name in config/benchmarks.yaml.
        split: A function that returns the words of a text. No word is blank.
        join: A function that joins words into a text.
    """

    name: UnitName
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


def get_word_unit(name: UnitName) -> WordUnit:
    """Return the word unit with this name.

    `whitespace` splits at white space and joins with single spaces, as in WikiMIA. Line breaks are lost on purpose:
    they are no evidence of membership, so classifiers must not see them.
    `jieba` segments Chinese text. It joins words without spaces, except between two Latin words.
    """
    if name == "whitespace":
        return WordUnit(name, str.split, " ".join)
    return WordUnit(name, _load_jieba_splitter(), _join_chinese)


def _load_jieba_splitter() -> Callable[[str], list[str]]:
    # The import is local because it takes a second.
    import jieba  # noqa: PLC0415

    # By default, jieba prints the loading time of its dictionary to standard error.
    jieba.setLogLevel(logging.WARNING)

    def split(text: str) -> list[str]:
        ends = [run.end() for run in _LONG_RUN.finditer(text)]
        words = []
        for begin, end in pairwise([0, *ends, len(text)]):
            words += jieba.lcut(text[begin:end])
        return list(filter(str.strip, words))

    return split


def _join_chinese(words: Sequence[str]) -> str:
    pieces: list[str] = []
    for word in words:
        if pieces and _LATIN_END.search(pieces[-1]) and _LATIN_START.search(word):
            pieces.append(" ")
        pieces.append(word)
    return "".join(pieces)
