"""Wikitext to prose: what stays, what goes, and texts made to take for ever."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_pipeline.connectors.wikipedia.wikitext import (
    MOST_CHARACTERS,
    categories,
    is_redirect,
    is_tail_heading,
    plain_text,
)
from audit_pipeline.errors import DataError

PAGE = """{{Short description|A flood}}
{{Infobox flood | name = Orla | deaths = {{plainlist|
* 3
}}}}
[[File:Orla.jpg|thumb|upright|The river [[Orla]] in ''spate''<ref>Ann</ref>]]
The '''2023 Orla floods''' ({{lang|la|diluvium}}; {{IPA|x}}) began on {{date|2023}}1&nbsp;May in [[Velm (town)|Velm]].\
<ref name="a">{{cite web|url=x}}</ref><ref name="a" /> They reached [[Torn]], {{convert|30|km|mi}} away.<!-- check -->

== Course ==
__NOTOC__
{| class="wikitable"
! Day !! Level
|-
| 1 || 3 {{nested|{|}}
|}
The water rose ''quickly''<br />and <b>fell</b> H<sub>2</sub>O.
* [https://example.org/a The report] of [https://example.org/b]
* A second point
<gallery>
File:A.jpg|A picture
</gallery>
=== See also ===
* [[Nothing]]
=== Damage ===
Much was lost.

== References ==
{{Reflist}}
=== Further ===
More references.
== Aftermath ==
It was rebuilt.
== External links ==
* [https://example.org Site]
[[Category:2023 floods in Velm|Orla]]
[[fr:Inondations]]
"""
LEAD = "The 2023 Orla floods (diluvium) began on 1 May in Velm. They reached Torn, 30 km away."


def test_a_page_by_hand() -> None:
    assert plain_text(PAGE) == (
        f"{LEAD}\n\nThe water rose quickly\nand fell H2O.\nThe report of\nA second point\n\nMuch was lost.\n\n"
        "It was rebuilt."
    )
    assert plain_text(PAGE, "lead") == LEAD
    assert categories(PAGE) == ("2023 floods in Velm",)


def test_a_chinese_page() -> None:
    page = (
        "{{灾害}}'''2023年奥拉洪水'''\uff08{{lang-en|Orla}}\uff1b-{zh-hans:洪水; zh-hant:洪災}-\uff09发生于[[沃姆]]。"
        "-{T|zh:题}--{原文}-({{x}}\uff0c)\n== 参考文献 ==\n{{reflist}}\n== 影响 ==\n很大。\n== 外部連結 ==\n"
        "* [http://a b]\n[[Category:2023年洪水]][[分类:沃姆_历史]]"
    )
    assert plain_text(page) == "2023年奥拉洪水\uff08洪水\uff09发生于沃姆。原文\n\n很大。"
    assert categories(page) == ("2023年洪水", "沃姆 历史")


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("[[:Category:Floods]] and [[:File:A.jpg|a file]]", "Category:Floods and a file"),
        ("[[2001: A Space Odyssey]]", "2001: A Space Odyssey"),
        ("[[Image:a.png]][[de:Foo]]x", "x"),
        ("a ({{x}}, {{y}}) b", "a b"),
        ("a ( {{x}}; b) c", "a (b) c"),
        ("a {{x}}, b {{y}}.", "a, b."),
        ("a &ndash; b &amp; c", "a – b & c"),
        ("<nowiki>[[plain]]</nowiki>", "[[plain]]"),
        ("a<math>x</math>b", "ab"),
        ("{| unclosed\n| cell\nProse.", "Prose."),
        ("", ""),
    ],
)
def test_pieces(wikitext: str, expected: str) -> None:
    assert plain_text(wikitext) == expected


def test_redirects_and_tail_headings() -> None:
    assert is_redirect("#REDIRECT [[Velm]]")
    assert is_redirect("\n# redirect: [[Velm]]")
    assert is_redirect("#重定向 [[沃姆]]")
    assert not is_redirect("A page about #REDIRECT [[Velm]]")
    assert is_tail_heading(" See also: ")
    assert is_tail_heading("參考資料")
    assert not is_tail_heading("History")


@pytest.mark.parametrize(
    "hostile",
    ["<ref>" * 5000, "{|\n" * 5000, "x" * (MOST_CHARACTERS + 1)],
    ids=["references", "tables", "length"],
)
def test_texts_that_would_take_for_ever_are_refused(hostile: str) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match=r"never closes|longer than"):
        plain_text(hostile)
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(
    "odd",
    [
        "{{" * 20_000,
        "[[" * 20_000,
        "{{a|" * 3000 + "}}" * 3000,
        "; " * 50_000,
        "(" * 50_000,
        "<br>" * 5000,
        "\n" * 100_000,
    ],
)
def test_odd_texts_are_done_with_soon(odd: str) -> None:
    start = time.monotonic()
    plain_text(odd)
    assert time.monotonic() - start < 5


WORDS = st.lists(st.sampled_from(["flood", "river", "rose", "Velm"]), min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_words_outside_markup_stay_and_words_inside_it_go(pieces: list[tuple[str, str]]) -> None:
    wikitext = "\n\n".join(f"{seen}<ref>{unseen}</ref> {{{{cite|{unseen}}}}}" for seen, unseen in pieces)
    assert plain_text(wikitext) == "\n\n".join(seen for seen, _ in pieces)


@given(st.text(alphabet="ab[]{}|'=<>/!-\n:*#;&_ ", max_size=60))
def test_no_text_breaks_it_or_leaves_ragged_lines(wikitext: str) -> None:
    for part in ("article", "lead"):
        text = plain_text(wikitext, part)
        assert text == text.strip()
        assert "\n\n\n" not in text
