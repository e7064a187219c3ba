"""Cleaning of Chinese texts, step by step, and the rules for skipping texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import max_examples

from audit_pipeline.sources.patents.cleaning import (
    CleaningRules,
    NestedMarkupError,
    clean,
    compute_chinese_share,
    compute_repeated_share,
    find_broken_rule,
    normalise_spaces,
    remove_markup,
    remove_repeated_lines,
)

RULES = CleaningRules()
# The pieces that the steps look for. Random combinations test unexpected cases.
SPACES = ("\u3000", "\xa0", "\t", " ", "\n", "\r", "\r\n", "\x0b", "\x85", "\u2028")
INVISIBLE = ("\x00", "\u200b", "\ufeff", "\ue000", "\ufffd")
TAGS = ("<b>", "</b>", "<", ">", "br", "<br/>", "<p class='x'>", "<!--", "-->")
ENTITIES = ("&lt;", "&gt;", "&amp;", "amp;", "&", ";", "lt;", "&#32;", "&#x5b;", "#91;", "&nbsp;")
FURNITURE = ("[", "]", "0001", "[0002]", "【0003】", "CN 112345678 A", "说明书 1/5 页", "3/7页")
PROSE = ("灯", "一种灯笼，包括灯罩和毛刷。", "一行有十个字以上的文字重复", "a", "Z", "1", "，", "“")
PIECES = st.sampled_from((*SPACES, *INVISIBLE, *TAGS, *ENTITIES, *FURNITURE, *PROSE))
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=25).map("".join)


def test_line_ends_of_every_kind() -> None:
    assert clean("一\r\n二\r三\x0b四\x0c五\x85六\u2028七\u2029八\n九", RULES) == "一\n二\n三\n四\n五\n六\n七\n八\n九"


def test_markup_is_removed_and_comparisons_stay() -> None:
    assert (
        remove_markup("水（H<sub>2</sub>O）<br/>和&nbsp;<img src='x.png'>CO&#8322;<!-- 注 -->")
        == "水（H2O）\n和\xa0CO₂"
    )
    assert remove_markup("若a<b且c>d，则x&y；AT&T; R&D") == "若a<b且c>d，则x&y；AT&T; R&D"
    assert remove_markup("&amp;lt;b&amp;gt;") == "&lt;b&gt;"
    assert clean("重&lt;b&gt;量&amp;lt;/b&amp;gt;", RULES) == "重量"


def test_control_and_invisible_characters() -> None:
    assert clean("灯\u200b笼\ufeff，\x00毛\x7f刷\ue123\ufffd\u202e\ud800。\n", RULES) == "灯笼，毛刷。"
    # Traditional, rare and combining characters are text.
    assert clean("燈籠𠮷龘か\u3099", RULES) == "燈籠𠮷龘か\u3099"


def test_spaces() -> None:
    assert normalise_spaces(" 一 种\u3000\u3000灯 笼 ， 长\xa05 cm\t的 LED 灯 \n\n \n下 一行") == (
        "一种灯笼，长 5 cm 的 LED 灯\n下一行"
    )


def test_paragraph_numbers_only_before_a_paragraph() -> None:
    assert clean("[0001] 一种灯\n［0002］二\n【00003】三\n见[0004]段\n[12] 四", RULES) == (
        "一种灯\n二\n三\n见[0004]段\n[12] 四"
    )
    assert clean("[0001] [0002]一种", RULES) == "一种"


def test_page_furniture_only_on_lines_of_its_own() -> None:
    text = (
        "CN 112345678 A\n一种灯\n说明书 1/5 页\n权 利 要 求 书 1 / 2 页\n3/7页\n对比文件CN112345678A公开了\n比例为3/7\n"
    )
    assert clean(text, RULES) == "一种灯\n对比文件CN112345678A公开了\n比例为3/7"


def test_repeated_lines_are_kept_once() -> None:
    text = "本行一共有十个字以上\n其中\n本行一共有十个字以上\n其中"
    assert remove_repeated_lines(text, 10) == "本行一共有十个字以上\n其中\n其中"
    assert remove_repeated_lines(text, 2) == "本行一共有十个字以上\n其中"
    assert remove_repeated_lines(text, None) == text


@max_examples(60)
@given(TEXTS)
def test_a_second_cleaning_changes_nothing(text: str) -> None:
    try:
        once = clean(text, RULES)
    except NestedMarkupError:
        return
    assert clean(once, RULES) == once
    assert not any(character in once for character in "\r\t\x00\u200b\ufeff\u3000\xa0\ufffd\ue000")
    assert once == "" or all(line == line.strip() != "" for line in once.split("\n"))
    assert len(once) <= len(text)


@given(st.text(alphabet="灯笼毛刷转轴燈籠，。", min_size=1))
def test_plain_chinese_stays_unchanged(text: str) -> None:
    assert clean(text, RULES) == text


def test_markup_escaped_without_end_is_refused_quickly() -> None:
    with pytest.raises(NestedMarkupError, match="markup within markup after 8 rounds"):
        clean("&" + "amp;" * 50_000 + "lt;b&gt;", RULES)
    clean("<!--" * 20_000 + "<b " * 20_000 + "[0001" * 20_000, RULES)


def test_shares_by_hand() -> None:
    assert compute_chinese_share("灯笼ab") == 0.5
    assert compute_chinese_share("") == 0
    # Sequences of 3 in "abcabcx": abc bca cab abc bcx; abc twice of 5.
    assert compute_repeated_share("AB cab\ncx", 3) == 2 / 5
    assert compute_repeated_share("一二", 3) == 0


def test_each_rule_reports_its_detail() -> None:
    prose = "".join(chr(0x4E00 + place) for place in range(201))
    assert find_broken_rule(prose, RULES) is None
    assert find_broken_rule(prose[:200], RULES) == "the text has only 200 characters; more than 200 are required"
    assert find_broken_rule("\n".join(prose[place : place + 8] for place in range(0, 201, 8)), RULES) == (
        "the lines have only 8.7 characters on average; at least 10 are required"
    )
    hangul = "".join(chr(0xAC00 + place) for place in range(470))
    assert find_broken_rule(prose + hangul[:469], RULES) is None
    assert (
        find_broken_rule(prose + hangul, RULES) == "only 30% of the characters are Chinese; at least 30% are required"
    )
    assert (
        find_broken_rule(prose[:100] * 3, RULES)
        == "100% of the 13-character sequences are repeated; at most 50% are allowed"
    )
    assert find_broken_rule(prose[:100] * 3, RULES, body=prose) is None
    assert find_broken_rule(prose[:50], CleaningRules(more_than_characters=49)) is None
