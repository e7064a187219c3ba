"""Texts on both sides are found in every spelling."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest

from audit_pipeline.splits import shared_text
from audit_pipeline.splits.shared_text import (
    build_comparison_key,
    find_texts_on_both_sides,
    normalise_text,
    normalise_words,
)

TEXT = "The harbour was full of copper kettles, and nobody in the orchard asked for the winter ladder or a thimble."
OTHER = "Shepherds of the quarry bring their saddles to a ferry that leaves before barley and timber are on the wagon."


SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda text: unicodedata.normalize("NFD", text),
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: text.replace("ou", "o\u00adu").replace("ed", "e\u200bd"),
    lambda text: text.replace("'", "\u2019").replace('"', "\u201d"),
    lambda text: text.replace("fi", "\ufb01"),
    lambda text: text.replace(" ", "\r\n"),
    lambda text: text.replace("harbour", "har-\nbour"),
    lambda text: text.replace("-", "\u2010").replace(",", " \u2014"),
    lambda text: "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text),
    str.upper,
    lambda text: f"{text.replace(' ', '  ')}   \n\n",
    lambda text: f"\ufeff{text}",
)
SPELLED = "The first 'café' of the harbour: 1.5 km of re-read \"papers\", finished in été."


@pytest.mark.parametrize("spell", SPELLINGS)
def test_another_spelling_has_the_same_key(spell: Callable[[str], str]) -> None:
    assert build_comparison_key(spell(SPELLED)) == build_comparison_key(SPELLED)
    wrapped = SPELLED.replace("harbour", "har bour")
    assert normalise_words(spell(SPELLED)) in (normalise_words(SPELLED), normalise_words(wrapped))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1.5", "15"),
        ("5 - 3", "5 + 3"),
        ("5*3", "5/3"),
        ("x = -5", "x = 5"),
        ("a+b", "a b"),
        ("!!!", "???"),
        ("कि", "का"),
        ("12 3", "1 23"),
        ("$5", "€5"),
        ("not", "knot"),
    ],
)
def test_other_texts_have_other_keys(one: str, other: str) -> None:
    assert build_comparison_key(one) != build_comparison_key(other)


def test_line_ends_in_chinese_do_not_matter() -> None:
    assert build_comparison_key("灯笼在马车\n下长山。") == build_comparison_key("灯笼在马车下长山")


def found(*labelled: tuple[str, int | None]) -> list[int]:
    texts, labels = zip(*labelled, strict=True)
    return find_texts_on_both_sides(texts, [""] * len(texts), labels, 0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        str.upper,
        lambda text: f"  {text}\n".replace(" ", " \t\n"),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace(" ", " \u200b"),
        lambda text: text.replace("o", "o\u00ad"),
        lambda text: text.replace("full", "ﬀull".replace("ﬀ", "f")),
        lambda text: text.replace("kettles", "cups"),
        lambda text: f"{text} And so on.",
        *SPELLINGS,
    ],
)
def test_one_text_under_two_labels(change: Callable[[str], str]) -> None:
    assert found((TEXT, 1), (OTHER, 1), (change(TEXT), 0)) == [0, 2]
    assert found((TEXT, 1), (OTHER, 0), (change(TEXT), 1)) == []
    assert found((TEXT, None), (OTHER, 1), (change(TEXT), 0)) == []


def test_every_copy_is_found() -> None:
    assert found((TEXT, 1), (TEXT.upper(), 1), (f"{TEXT} Yes.", 0), (f"{TEXT}  yes.", 0), (OTHER, 0)) == [0, 1, 2, 3]


def test_empty_texts_are_compared_by_their_digest() -> None:
    assert find_texts_on_both_sides(["", "", "", ""], ["a", "b", "a", ""], [1, 1, 0, 0], 0.5) == [0, 2]


def test_among_many_texts_equal_ones_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_text, "MAX_COMPARED", 2)
    assert found((TEXT, 1), (OTHER, 1), (TEXT.upper(), 0), (f"{OTHER} No.", 0), ("short", 0)) == [0, 2]


def test_invisible_differences_are_removed() -> None:
    assert normalise_text("\ufeffA\u200b  B\u00a0\u00adc\r\n") == "a b c"
    assert normalise_text("ﬁne Straße") == "fine strasse"
    assert normalise_text(" \u200b ") == ""
