"""Normalised words: equal and different texts, and positions in the text."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.chat.matching import hash_normalised_words

SIGNS = st.text(alphabet="aBé\u0301ﬁ .-\u2010\u2011\u00ad\n\r\t7\u0939\u093f😀", max_size=30)


def words_of(text: str) -> list[str]:
    """Return the stretch of the text of each word."""
    words = hash_normalised_words(text)
    return [text[start:end] for start, end in zip(words.starts, words.ends, strict=True)]


def are_equal(text: str, other: str) -> bool:
    return hash_normalised_words(text).hashes.tolist() == hash_normalised_words(other).hashes.tolist()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("exam-\nple", "example"),
        ("exam\u2010\nple", "example"),
        ("exam\u2011\r\nple", "example"),
        ("exam\u00ad\rple", "example"),
        ("exam- \n\t ple", "example"),
        ("ex\u00adam\u00ad\u00adple", "example"),
        ("re\u0301-\nsume\u0301", "Résumé"),
        ("\u0939\u093f-\n\u0939\u093f", "\u0939\u093f\u0939\u093f"),
        ("e\u00ad\u0301", "é"),
        ("“Don’t,” he said — ‘go’", "\"don't\" he said - 'go'"),
        ("don't", "don t"),
        ("well-known", "well known"),
        ("THE ﬁne Ｆｕｌｌ", "the fine full"),
        ("a\n\n  b\u00a0c", "a b c"),
        ("中-\n文", "中文"),
        ("exam\u200bple", "example"),
    ],
)
def test_texts_with_equal_words(text: str, other: str) -> None:
    assert are_equal(text, other)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("cafe", "café"),
        ("well-\nknown", "well-known"),
        ("exam-\n\nple", "example"),
        ("exam -\nple", "example"),
        ("exam--\nple", "example"),
        ("1914-\n18", "191418"),
        ("colour", "color"),
    ],
)
def test_texts_with_different_words(text: str, other: str) -> None:
    assert not are_equal(text, other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("\u00ad", []),
        ("-\n", []),
        (" 😀 ", []),
        ("one", ["one"]),
        ("An exam-\nple, co\u00adoperate; it", ["An", "exam-\nple", "co\u00adoperate", "it"]),
        ("\u00ada\u00ad b\u00ad", ["a", "b"]),
        ("ex\u00ad\u00adam-\nple x-\n- y", ["ex\u00ad\u00adam-\nple", "x", "y"]),
        ("中文 ﬁ-\nn 字", ["中", "文", "ﬁ-\nn", "字"]),
    ],
)
def test_positions_belong_to_the_original_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(SIGNS)
def test_composed_and_decomposed_texts_have_the_same_words(text: str) -> None:
    assert are_equal(text, unicodedata.normalize("NFD", text))


@given(SIGNS)
def test_each_stretch_alone_gives_its_word(text: str) -> None:
    words = hash_normalised_words(text)
    for word, stretch in zip(words.hashes.tolist(), words_of(text), strict=True):
        assert hash_normalised_words(stretch).hashes.tolist() == [word]
    assert np.all(words.starts[1:] >= words.ends[:-1])


def test_many_hyphens_and_much_white_space() -> None:
    assert len(hash_normalised_words("a-\n" * 20_000)) == 1
    assert len(hash_normalised_words("\u00ad" * 60_000)) == 0
    assert len(hash_normalised_words("a-" + " " * 60_000 + "b")) == 2
