"""Readable texts of many kinds, and unreadable texts from wrong fonts and encodings.

The error rates on real texts are in docs/input-files.md.
"""

from __future__ import annotations

import base64
import random
import string
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.readers.whole_files.legibility import (
    MIN_CHARACTERS,
    count_illegible_characters,
    explain_illegible,
)

SENTENCES = {
    "en": "The keeper of the lamp wrote that the harbour was quiet that night, and nobody came down the hill to ask. ",
    "de": "Der Wärter schrieb am Abend, dass der Hafen still geblieben war und niemand mehr über die Brücke kam. ",
    "fr": "Le gardien écrivait chaque soir que le port était calme et que personne n'avait demandé où était la lampe. ",
    "es": "El guardián escribió que el puerto estaba tranquilo aquella noche y que nadie bajó del monte a preguntar. ",
    "it": "Il guardiano scrisse che il porto era tranquillo quella notte e che nessuno scese dalla collina a dire. ",
    "pl": "Strażnik napisał, że port był tej nocy spokojny i że nikt nie zszedł ze wzgórza, żeby zapytać o światło. ",
    "cs": "Strážce napsal, že přístav byl té noci tichý a že nikdo nepřišel z kopce, aby se zeptal na světlo. ",
    "fi": "Vartija kirjoitti, että satama oli sinä yönä hiljainen eikä kukaan tullut mäeltä kysymään lampusta. ",
    "tr": "Bekçi o gece limanın sessiz olduğunu ve kimsenin tepeden inip lambayı sormadığını yazdı. ",
    "vi": "Người gác đèn viết rằng đêm ấy bến cảng yên tĩnh và không ai xuống đồi để hỏi thăm ngọn đèn. ",
    "nl": "De wachter schreef dat de haven die nacht stil was en dat niemand van de heuvel kwam om iets te vragen. ",
    "ru": "Смотритель записал, что в ту ночь в гавани было тихо и никто не спустился с холма спросить о лампе. ",
    "el": "Ο φύλακας έγραψε ότι το λιμάνι ήταν ήσυχο εκείνη τη νύχτα και κανείς δεν κατέβηκε από τον λόφο. ",
    "he": "השומר כתב שהנמל היה שקט באותו לילה ושאיש לא ירד מן הגבעה לשאול על המנורה. ",
    "ar": "كتب الحارس أن الميناء كان هادئا في تلك الليلة وأن أحدا لم ينزل من التل ليسأل عن المصباح. ",
    "hi": "रखवाले ने लिखा कि उस रात बंदरगाह शांत था और कोई भी पहाड़ी से दीये के बारे में पूछने नहीं आया। ",
    "th": "คนเฝ้าประภาคารเขียนว่าคืนนั้นท่าเรือเงียบสงบและไม่มีใครลงมาจากเนินเขาเพื่อถามหาตะเกียง ",
    "zh": "看灯人写道，那天夜里港口很安静，没有人从山上下来打听那盏灯。",
    "ja": "灯台守は、その夜の港は静かで、丘から灯りのことを尋ねに来る者はいなかったと書いた。",
    "ko": "등대지기는 그날 밤 항구가 조용했고 아무도 언덕에서 내려와 등불에 대해 묻지 않았다고 썼다. ",
}
LONGER = (
    SENTENCES["en"] + "In the morning two boats lay by the old wall, empty, with their ropes cut short and wet. "
    "She wrote this in the book as well, closed it, and went up the stairs to wind the clock before breakfast. "
    "What became of the men we never heard; their names are in no list that I could find, here or in the town. "
    "Some of the children say that they still hear oars after midnight, when fog stands over the outer rocks. "
)
LATIN = ("en", "de", "fr", "es", "it", "pl", "cs", "fi", "nl")
RANDOM = random.Random(1)


def joined(words: Callable[[], str], number: int, gap: str = " ") -> str:
    return gap.join(words() for _ in range(number))


SPARED = {
    **SENTENCES,
    "decomposed": unicodedata.normalize("NFD", SENTENCES["vi"]),
    "without vowels": "".join(c for c in LONGER if c not in "aeiou"),
    "python": "def _is_key(one: str, *, of: Mapping[str, int]) -> bool:\n    return one in of and of[one] >= 0  # no\n",
    "c": "#define MAX(a,b) ((a)>(b)?(a):(b))\nstatic int xk_cmp(const void *p, const void *q) { return *p-*q; }\n",
    "perl": "my %h = map { $_ => 1 } grep { /^\\w+$/ && !$x{$_}++ } @ARGV; print qq($_\\n) for sort keys %h;\n",
    "latex": "\\frac{\\partial u}{\\partial t} = \\alpha \\nabla^2 u + \\sum_{i=1}^{N} \\int_0^\\infty e^{-x_i t} dx ",
    "formulas": "∀x∈ℝ: ∃y (x² + y² = 1) ⟹ |x| ≤ 1; ∑ᵢ αᵢβᵢ = ∫₀^∞ e^{−λt} dt; ∇×E = −∂B/∂t; ⟨ψ|φ⟩ = cₙ. ",
    "numbers": joined(lambda: f"{RANDOM.gauss(0, 100):.3f}", 100, "\t"),
    "genes": joined(lambda: RANDOM.choice("ACGT"), 600, ""),
    "base64": base64.encodebytes(RANDOM.randbytes(600)).decode(),
    "hex": RANDOM.randbytes(300).hex(" ", 2),
    "abbreviations": joined(lambda: "".join(RANDOM.sample(string.ascii_uppercase, 3)), 200),
    "drawing": "+----+----+\n|  1 | /\\ |\n+----+----+\n",
    "log": "\x1b[32mok\x1b[0m test_one \x1b[31mfail\x1b[0m test_two\n",
    "bold manual": "".join(f"{c}\b{c}" for c in "NAME") + " the lamp, as its keeper wrote it\n",
    "ipa": "ðə ˈkiːpər əv ðə ˈlæmp ˈroʊt ðət ðə ˈhɑːrbər wəz ˈkwaɪət ðət ˈnaɪt ənd ˈnoʊbɒdi ˈkeɪm ",
    "alphabets": "abcdefghijklmnopqrstuvwxyz ",
    "paths": "/usr/share/man/man1/ls.1.gz /dev/sda1 /home/ada/a1/b2 ",
}


@pytest.mark.parametrize("name", SPARED)
def test_languages_code_tables_and_lists_are_readable(name: str) -> None:
    whole = SPARED[name] * (1 + 600 // len(SPARED[name]))
    for text in (whole, whole.upper(), whole.lower(), whole[:250]):
        assert explain_illegible(text) is None


def shifted(by: int) -> Callable[[str], str]:
    return lambda text: "".join(c if c == " " else chr(max(ord(c) + by, 0)) for c in text)


def numbered(text: str) -> str:
    """Number characters in the order of first use, as a subset font does."""
    places: dict[str, str] = {}
    return "".join(c if c == " " else places.setdefault(c, chr(33 + len(places))) for c in text)


def reencoded(written: str, read: str) -> Callable[[str], str]:
    return lambda text: text.encode(written, "ignore").decode(read, "replace")


NO_WORDS, NO_SCRIPT = "words of no language", "control, private-use or replacement characters"
JUNK: dict[str, tuple[tuple[str, ...], Callable[[str], str], str]] = {
    "shifted by 29": (LATIN, shifted(-29), NO_WORDS),
    "shifted by 31": (LATIN, shifted(-31), NO_WORDS),
    "shifted by 1": (LATIN, shifted(1), NO_WORDS),
    "shifted with blanks": (LATIN, lambda text: "".join(chr((ord(c) - 29) % 256) for c in text), NO_SCRIPT),
    "numbered": (LATIN, numbered, NO_WORDS),
    "glyph names": (LATIN, lambda text: "".join(f"/g{ord(c)}" for c in text), "names or numbers of glyphs"),
    "cids": (LATIN, lambda text: "".join(f"(cid:{ord(c)})" for c in text), "names or numbers of glyphs"),
    "private use": (tuple(SENTENCES), lambda text: "".join(chr(0xF000 + ord(c) % 256) for c in text), NO_SCRIPT),
    "replaced": (LATIN, lambda text: "".join("\ufffd" if c.isalpha() else c for c in text), NO_SCRIPT),
    "utf-8 as cp1251": (("ru",), reencoded("utf-8", "cp1251"), "another encoding"),
    "utf-8 as latin-1": (("ru", "el", "he", "ar", "hi", "th", "zh", "ko"), reencoded("utf-8", "latin-1"), ""),
    "utf-8 as cp437": (("ru", "el", "he", "ar"), reencoded("utf-8", "cp437"), "another encoding"),
    "utf-8 as gb18030": (("zh",), reencoded("utf-8", "gb18030"), ""),
    "cp1251 as cp1252": (("ru",), reencoded("cp1251", "cp1252"), "another encoding"),
    "iso8859-7 as latin-1": (("el",), reencoded("iso8859-7", "latin-1"), "another encoding"),
    "glyph numbers of Cyrillic": (("ru",), lambda text: shifted(-470)(text.replace(",", "")), "another encoding"),
    "any glyph numbers": (("zh",), lambda text: "".join(chr(0x180 + ord(c) * 97 % 0x4000) for c in text), ""),
    "UTF-16 as latin-1": (LATIN, reencoded("utf-16-le", "latin-1"), NO_SCRIPT),
}


@pytest.mark.parametrize("name", JUNK)
def test_wrong_fonts_and_encodings_are_unreadable(name: str) -> None:
    languages, spoil, reason = JUNK[name]
    for language in languages:
        text = spoil(SENTENCES[language] * (1 + 600 // len(SENTENCES[language])))
        assert reason in (explain_illegible(text) or "nothing"), (language, text[:60])


def test_only_characters_of_short_texts_are_checked() -> None:
    assert explain_illegible("") is None
    assert explain_illegible(shifted(-29)(SENTENCES["en"])[:MIN_CHARACTERS]) is None
    assert NO_WORDS in str(explain_illegible(shifted(-29)(LONGER)))
    assert explain_illegible("\ue000\ue001\ue002") is not None


@max_examples(100)
@given(st.lists(st.sampled_from(sorted(SENTENCES)), min_size=1, max_size=12))
def test_sentences_of_several_languages_are_readable(languages: list[str]) -> None:
    assert explain_illegible("".join(SENTENCES[language] for language in languages)) is None


@given(
    st.text(st.characters() | st.sampled_from("\x00\x08\x1a\x7f\x85\x9f\ue000\ufffd\U00100000\ud800a "), max_size=30)
)
def test_characters_of_no_script_are_counted_within_and_outside_ascii(text: str) -> None:
    ranges = [(0, 7), (14, 26), (127, 132), (134, 159), (0xE000, 0xF8FF), (0xFFFD, 0xFFFF), (0xF0000, 0x10FFFF)]
    expected = sum(any(first <= ord(character) <= last for first, last in ranges) for character in text)
    assert count_illegible_characters(text) == expected
