"""Words of a text, their positions, and the hashes of words and of runs of words."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.extras.corpora.word_hashes import hash_runs, hash_words_of_texts, map_to_original

SENTENCES = st.text(alphabet="aB é\u0301\u00ad\u200bẞŉㄱㅏﾡﾂﬁ½中が\u3099ｶﾞ가\u1161\u11a8\t.—'İß1²\u00a0𝒳", max_size=30)


def words_of(text: str) -> list[str]:
    words, _ = hash_words_of_texts([text])
    return [text[start:end] for start, end in zip(words.starts, words.ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ... 😀 ", []),
        ("The fox's—den", ["The", "fox", "s", "den"]),
        ("中文 and 字", ["中", "文", "and", "字"]),
        ("re\u0301sume\u0301 done", ["re\u0301sume\u0301", "done"]),
        ("a_b c", ["a", "b", "c"]),
        ("x\ud800y", ["x", "y"]),
    ],
)
def test_words_and_their_positions(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.lists(SENTENCES, max_size=4))
def test_equal_words_have_equal_hashes_in_every_text(texts: list[str]) -> None:
    words, first_word = hash_words_of_texts(texts)
    assert len(first_word) == len(texts) + 1
    for number, text in enumerate(texts):
        own = slice(first_word[number], first_word[number + 1])
        alone, _ = hash_words_of_texts([text])
        for name in ("hashes", "starts", "ends"):
            assert np.array_equal(getattr(words, name)[own], getattr(alone, name))
    lower = [hash_words_of_texts([unicodedata.normalize("NFD", text)])[0].hashes for text in texts]
    assert np.array_equal(np.concatenate([*lower, np.empty(0, np.uint64)]), words.hashes)


def test_case_and_form_of_a_character_do_not_matter() -> None:
    groups = []
    for character in map(chr, [*range(0xD800), *range(0xE000, 0x20000)]):
        spelling = f"x{character}y"
        forms = [unicodedata.normalize(form, spelling) for form in ("NFC", "NFD", "NFKD")]
        cases = [f"x{change(character)}y" for change in (str.lower, str.upper, str.casefold)]
        groups.append({spelling, *forms, *cases})
    groups = [group for group in groups if len(group) > 1]
    hashes, first_word = hash_words_of_texts([spelling for group in groups for spelling in group])
    words = np.split(hashes.hashes, first_word[1:-1])
    at = 0
    for group in groups:
        first = words[at].tolist()
        assert all(other.tolist() == first for other in words[at : at + len(group)]), group
        at += len(group)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Große Straße", "GROẞE STRASSE"),
        ("İSTANBUL ISPARTA", "istanbul ısparta"),
        ("ex\u00adam\u200bple \ufeffmi\u200cxed", "example mixed"),
        ("ｶﾞｯｺｳ", "ガッコウ"),
        ("ＡＢＣ ①", "abc 1"),
        ("ῼ ᾈδης", "ῳ ᾀδησ"),
    ],
)
def test_two_spellings_of_a_text_have_the_same_words(text: str, other: str) -> None:
    first, second = (hash_words_of_texts([spelling])[0].hashes.tolist() for spelling in (text, other))
    assert first == second


@pytest.mark.parametrize(
    ("text", "words"),
    [("\u00adGroß\u00ade, ẞ", ["Groß\u00ade", "ẞ"]), ("ﬁn ŉa\u200b b", ["ﬁn", "ŉa", "b"]), ("i̇ x", ["i", "x"])],
)
def test_positions_of_folded_words_are_in_the_original_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(SENTENCES)
def test_clusters_cover_the_whole_text(text: str) -> None:
    starts, ends = map_to_original(text)
    normal = unicodedata.normalize("NFKC", text)
    assert len(starts) == len(ends) == len(normal)
    assert "".join(
        unicodedata.normalize("NFKC", text[a:b]) for a, b in dict.fromkeys(zip(starts, ends, strict=True))
    ) == (normal)


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9))
def test_runs_are_equal_if_their_words_are(numbers: list[int], n: int) -> None:
    values = np.array([11, 22, 33, 44], np.uint64)[np.array(numbers, np.int64)]
    runs = hash_runs(values, n)
    expected = [tuple(numbers[at : at + n]) for at in range(len(numbers) - n + 1)]
    assert len(runs) == len(expected)
    assert len(set(runs.tolist())) == len(set(expected))
    assert len(set(zip(runs.tolist(), expected, strict=True))) == len(set(expected))
