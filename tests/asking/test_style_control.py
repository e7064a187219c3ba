"""The classifier of style: what it sees of an option, what it chooses, and what it cannot know."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from audit_pipeline.asking.style import _describe_style, choose_by_style

WORDS = [f"{first}{second}n" for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "ai", "ou")]
Change = Callable[[str, random.Random], str]


def build_options(
    n_documents: int, n_questions: int, change: Change, seed: int = 0
) -> tuple[list[list[str]], list[str]]:
    """Four texts of 30 words a question, of which ``change`` changes the first, the verbatim one."""
    rng = random.Random(seed)
    options, documents = [], []
    for number in range(n_documents):
        for _ in range(n_questions):
            four = [" ".join(rng.choices(WORDS, k=30)) for _ in range(4)]
            options.append([change(four[0], rng), *four[1:]])
            documents.append(f"d{number:02}")
    return options, documents


@pytest.mark.parametrize(
    "change",
    [
        lambda text, rng: text.title(),
        lambda text, rng: text + " " + " ".join(rng.choices(WORDS, k=15)),
        lambda text, rng: text.replace(" ", ", "),
        lambda text, rng: text.replace("n", "nnn"),
        lambda text, rng: " ".join(text.split()[:10] * 3),
        # Words that only verbatim options have, and all of them.
        lambda text, rng: text[:-11] + " bxn cxn dxn",
    ],
    ids=["case", "length", "punctuation", "long words", "variety", "frequency"],
)
def test_each_trait_of_style_gives_the_verbatim_option_away(change: Change) -> None:
    right = choose_by_style(*build_options(12, 6, change))
    assert right is not None
    assert right.mean() > 0.7


def test_without_a_trait_the_classifier_is_right_by_chance() -> None:
    right = choose_by_style(*build_options(30, 10, lambda text, rng: text))
    assert right is not None
    # Three standard deviations of 300 choices.
    assert abs(right.mean() - 0.25) < 3 * math.sqrt(0.25 * 0.75 / 300)


def test_a_document_is_not_learned_from_for_its_own_questions() -> None:
    """One document's verbatim options are in capitals; no other one's are, so nothing teaches it."""
    options, documents = build_options(20, 10, lambda text, rng: text)
    alone = [
        [four[0].upper(), *four[1:]] if name == "d00" else four for four, name in zip(options, documents, strict=True)
    ]
    right = choose_by_style(alone, documents)
    assert right is not None
    assert right[:10].mean() < 0.7


def test_options_that_look_alike_tie() -> None:
    options = [["dan fen", "dan fen", "dan fen", "dan fen"] for _ in range(6)]
    right = choose_by_style(options, ["a", "a", "b", "b", "c", "c"])
    assert right is not None
    assert right.tolist() == [0.25] * 6


def test_the_order_of_questions_changes_nothing() -> None:
    options, documents = build_options(7, 3, lambda text, rng: text.title() if rng.random() < 0.5 else text)
    right = choose_by_style(options, documents)
    order = random.Random(1).sample(range(len(documents)), len(documents))
    shuffled = choose_by_style([options[place] for place in order], [documents[place] for place in order])
    assert right is not None
    assert shuffled is not None
    assert shuffled.tolist() == right[order].tolist()


def test_too_few_documents_give_no_control() -> None:
    assert choose_by_style(*build_options(2, 5, lambda text, rng: text)) is None
    assert choose_by_style([], []) is None


def test_style_in_numbers_is_that_of_brute_force() -> None:
    options = [
        ["The Mill turned, and turned!", "a mill turns", "🙂 it went round.", "ROUND it went"],
        ["水车 turned", "mill", "the the the", "x9 y-z"],
        ["The lake; the Lake", "a lake", "there it lay…", "it lay"],
    ]
    groups = np.array([0, 0, 1])
    words = [[re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text.casefold()) for text in four] for four in options]
    by_group = [
        Counter(
            word for four, group in zip(words, groups, strict=True) if group == own for some in four for word in some
        )
        for own in (0, 1)
    ]
    for number, four in enumerate(options):
        other = by_group[1 - groups[number]]
        rows = []
        for text, some in zip(four, words[number], strict=True):
            lower, upper = sum(map(str.islower, text)), sum(map(str.isupper, text))
            rarity = [math.log((other[word] + 1) / (other.total() + 1)) for word in some]
            signs = sum(not (character.isalnum() or character.isspace()) for character in text)
            rows.append(
                [
                    lower / max(lower + upper, 1),
                    len(some),
                    sum(map(len, some)) / len(some),
                    signs / len(some),
                    len(set(some)) / len(some),
                    sum(rarity) / len(some),
                ]
            )
        means = [sum(column) / 4 for column in zip(*rows, strict=True)]
        expected = [[*row, *(value - mean for value, mean in zip(row, means, strict=True))] for row in rows]
        np.testing.assert_allclose(_describe_style(options, groups)[number], expected, atol=1e-12)
