"""Unseen text of web pages, books and PDFs, and lines of preformatted text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import soupsieve
from bs4 import BeautifulSoup, Tag
from made_epubs import epub, item, package, page
from made_whole_files import drawn_pdf, lines_at
from made_whole_files import read_content as read

from audit_pipeline.readers.whole_files.document import UNSEEN
from audit_pipeline.readers.whole_files.html import extract_prose, ignore_style_sheet
from audit_pipeline.readers.whole_files.visibility import find_styles


@pytest.mark.parametrize(
    "markup",
    [
        "<p hidden>no</p><p hidden='until-found'>no</p>yes",
        "<p style='display:none'>no</p><p style='DISPLAY: NONE ! important'>no</p>yes",
        "<style>.x, #y {display: none}</style><p class='x'>no</p><p id='y'>no</p>yes",
        "<style>p:not(.a){display:none}</style><p>no</p><p class='a'>yes</p>",
        "<dialog>no</dialog><noscript>no</noscript><div popover>no</div>yes",
        "<ul><li hidden>no<li>yes</ul>",
        "<div style='visibility:hidden'>no <b style='visibility:visible'>yes</b></div>",
        "<div style='opacity:0'>no <b style='opacity:1'>no</b></div>yes",
        "<div style='font-size:0'>no <b style='font-size:16px'>yes</b><i style='font-size:2em'>no</i></div>",
        "<p style='color:#fff'>no</p><p style='color:rgba(0, 0, 0, 0)'>no</p>yes",
        "<div style='background:#000'><p style='color:black'>no</p></div>yes",
        "<body bgcolor='#ffffff'><font color='white'>no</font>yes",
        "<p style='position:absolute;left:-9999px'>no</p><p style='text-indent:-5000px'>no</p>yes",
        "<p style='position:absolute;clip:rect(1px,1px,1px,1px)'>no</p><p style='clip-path:inset(50%)'>no</p>yes",
        "<style>@media screen and (min-width: 40em){.n{display:none}}</style><p class='n'>no</p>yes",
        "<style>@media not amzn-mobi{@supports (display:grid){.n{display:none}}}</style><p class='n'>no</p>yes",
        "<div style='height:0;overflow:hidden'>no</div><div style='overflow:clip visible;max-width:1px'>no</div>yes",
        "<p style='font:0/0 a'>no</p><p style='font:bold 1px a'>no</p>yes",
        "<style>#a{display:none!important}</style><p id='a' style='display:block'>no</p>yes",
    ],
)
def test_unseen_text_of_a_page_is_skipped_and_counted(markup: str) -> None:
    prose = extract_prose(markup)
    assert prose.text == "yes"
    assert prose.unread == {UNSEEN: len("no") * len(re.findall(r">no\b", markup))}


@pytest.mark.parametrize(
    "markup",
    [
        "<p aria-hidden='true'>yes</p>",
        "<dialog open>yes</dialog><template>no</template>",
        "<details><summary></summary>yes</details>",
        "<style>.x{display:none}.y .x{display:block}</style><div class='y'><p class='x'>yes</p></div>",
        "<style>.f{display:flex}</style><p class='f' hidden>yes</p>",
        "<style>@media print{p{display:none}}@media (max-width:600px){p{display:none}}</style><p>yes</p>",
        "<style>p::before{display:none} p:hover{display:none} @supports not (x:y){p{display:none}}</style><p>yes</p>",
        "<style>body{visibility:hidden;opacity:0}</style><body><p>yes</p></body>",
        "<div style='opacity:0;transition:opacity 1s'>yes</div>",
        "<div style='max-height:0;overflow:hidden;transition:max-height 1s'>yes</div>",
        "<div style='height:0'>y</div><div style='overflow:hidden;height:100%'>es</div>".replace("div", "span"),
        "<div style='height:0;padding-bottom:56%;overflow:hidden'>yes</div>",
        "<div style='width:0;flex:1 1 0;overflow:hidden'>yes</div>",
        "<p style='font:700 14px/1.5 a'>yes</p>",
        "<div style='background:#000'><p style='color:white'>yes</p></div>",
        "<div style='background:url(x.png)'><p style='color:white'>yes</p></div>",
        "<style>body{background:var(--dark)}</style><body><p style='color:white'>yes</p></body>",
        "<link rel='stylesheet' href='https://example.org/a.css'><p style='color:white'>yes</p>",
        "<p style='margin-left:-9999px;left:-9999px'>yes</p>",
        "<form><button>no</button>yes<select><option>no</select></form>",
    ],
)
def test_visible_text_of_a_page_is_read(markup: str) -> None:
    prose = extract_prose(markup)
    assert (prose.text, dict(prose.unread)) == ("yes", {})


@pytest.mark.parametrize(
    "selector",
    [
        "b",
        ".a b",
        ".a > b",
        "#i b",
        ".a .c b",
        ".n ~ b",
        ".n + p b",
        "p.n ~ p .c b",
        "div .n ~ div .c b",
        "b:not(.a *)",
        "* > b",
        ".absent b",
    ],
)
def test_a_rule_hides_the_elements_that_its_selector_matches(selector: str) -> None:
    inner = "<p class='n'>.</p><p><b>1</b></p><p><i class='c'><b>2</b></i></p><b>3</b>"
    body = f"<div class='a'>{inner}</div><div id='i'>{inner}<div class='n'></div><div>{inner}</div></div>{inner}"
    page = BeautifulSoup(f"<style>{selector} {{display:none}}</style>{body}", "lxml")
    hidden = find_styles(page, ignore_style_sheet).unseen
    # Equal elements occur several times, so identities are compared.
    matched = {id(element) for element in page.select(selector)}
    assert {id(element) for element in page.find_all("b")} & hidden == matched & {id(b) for b in page.find_all("b")}


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<pre>\none\n    two\n\n\n\tthree\n</pre>", "one\n    two\n\n\n\tthree"),
        ("<p>a</p><pre>b <b>c</b>\n d</pre>e  f", "a\n\nb c\n d\n\ne f"),
        ("<textarea>\none\n two</textarea>", "one\n two"),
        ("<style>.verse{white-space:pre-line}</style><p class='verse'>one\n  two</p>", "one\ntwo"),
        ("<p style='white-space:pre-wrap'>one\n  two <i>\nthree</i></p>", "one\n  two \nthree"),
        ("<pre style='white-space:normal'>one\n  two</pre>", "one two"),
        ("one<br>two", "one\ntwo"),
    ],
)
def test_preformatted_text_keeps_its_lines(markup: str, text: str) -> None:
    assert extract_prose(markup).text == text


def test_only_style_sheets_in_the_folder_of_a_page_are_read(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "page_files").mkdir()
    (tmp_path / "page" / "page_files" / "a b.css").write_text("@import 'c.css'; .no {display: none}")
    (tmp_path / "outside.css").write_text(".yes {display: none}")
    sheets = "".join(
        f"<link rel='stylesheet' href='{address}'>"
        for address in ("page_files/a%20b.css", "../outside.css", "//example.org/a.css", "file:///etc/passwd")
    )
    body = "<p class='no'>no</p><p class='yes'>yes</p>"
    whole = read(tmp_path / "page", "a.html", f"<html><head>{sheets}</head><body>{body}".encode())
    assert (whole.text, whole.problems) == ("yes", (("2 characters", UNSEEN),))


def test_style_sheets_of_a_book_hide_text_and_keep_verse(tmp_path: Path) -> None:
    chapter = page("<p>Seen.</p><p class='gone'>Hidden.</p><p class='verse'>One\n two.</p>").replace(
        "<head>", "<head><link rel='stylesheet' href='../OPS/book.css'/>"
    )
    sheet = ".gone {display: none} .verse {white-space: pre-line}"
    items = item("c", "one.xhtml") + item("s", "book.css", media="text/css")
    opf = package(items, '<itemref idref="c"/>')
    whole = read(tmp_path, "a.epub", epub({"one.xhtml": chapter}, opf=opf, **{"OPS/book.css": sheet}))
    assert whole.text == "Seen.\n\nOne\ntwo."
    assert ("7 characters", UNSEEN) in whole.problems


SEEN = ["The lamps were lit before the carriage came down the hill,", "and nobody who stood there said a word."]
OFF = "/OCProperties << /OCGs [7 0 R] /D << /OFF [7 0 R] >> >>"
PAGE, BOX = lines_at(SEEN), " 40 80 400 40 re f "
PHOTO = " q 500 0 0 700 40 40 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x80 EI Q "


def other(**options: object) -> str:
    return lines_at(["other"], y=100, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "catalog"),
    [
        (f"{PAGE} 1 1 1 rg {other()}", ""),
        (f"{PAGE} 0.98 g {other()}", ""),
        (f"{PAGE} 0 0 0 0 k {other()}", ""),
        (f"{PAGE} 0 0 1 rg {BOX} {other()}", ""),
        (f"{PAGE} {other()} {BOX}", ""),
        (f"{PAGE} /OC /OC1 BDC {other()} EMC", OFF),
        (f"{PAGE} /OC /OC1 BDC {lines_at(['other'])} EMC", OFF),
        (f"{PAGE} /OC /OC1 BDC {other()} EMC", "/OCProperties << /OCGs [7 0 R] /D << /BaseState /OFF >> >>"),
        (f"{PAGE} 1 1 1 RG {other(before='1 Tr')}", ""),
        (f"{PAGE} {other(size=0.5)}", ""),
        (f"{PAGE} q 0 0 10 10 re W n {other()} Q", ""),
        (f"{PAGE} {lines_at(['other'], y=2000)}", ""),
    ],
)
def test_unseen_text_of_a_pdf_is_skipped_and_counted(tmp_path: Path, content: str, catalog: str) -> None:
    whole = read(tmp_path, "a.pdf", drawn_pdf(content, catalog=catalog))
    assert (whole.text, whole.problems) == (" ".join(SEEN), (("5 characters", UNSEEN),))


@pytest.mark.parametrize(
    ("content", "catalog"),
    [
        (f"{PAGE} 0.7 g {other()}", ""),
        (f"{PAGE} 0 0 0.5 rg {BOX} 1 g {other()}", ""),
        (f"{PAGE} /OC /OC1 BDC {other()} EMC", OFF.replace("/OFF [7 0 R]", "")),
        # The text layer of a scan: invisible letters, or letters below the picture.
        (f"{PHOTO} {lines_at(SEEN, before='3 Tr')} {other(before='3 Tr')}", ""),
        (f"{PAGE} {other()} {PHOTO}", ""),
        (f"{PHOTO} 1 g {PAGE} {other()}", ""),
    ],
)
def test_visible_text_of_a_pdf_is_read(tmp_path: Path, content: str, catalog: str) -> None:
    whole = read(tmp_path, "a.pdf", drawn_pdf(content, catalog=catalog))
    assert (whole.text.split(), whole.problems) == (" ".join([*SEEN, "other"]).split(), ())


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<?xml version='1.0'?><html><p><![CDATA[a < b & <i>]]> c</p></html>", "a < b & <i> c"),
        ("<!DOCTYPE html><html lang='en' xmlns='http://www.w3.org/1999/xhtml'><p>a <![CDATA[b]]></p></html>", "a b"),
        ("<?xml version='1.0'?><style>/*<![CDATA[*/ div > b {display:none} /*]]>*/</style><div>a <b>no</b></div>", "a"),
        ("<p>a <![CDATA[b]]> c</p>", "a c"),
    ],
)
def test_cdata_sections_are_text_only_in_xhtml(markup: str, text: str) -> None:
    assert extract_prose(markup).text == text


def test_rules_are_compared_with_few_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    # A saved page has thousands of rules such as ``.card-7 p``. Comparing each with every <p> would take minutes.
    matched: list[Tag] = []
    match = soupsieve.SoupSieve.match

    def record(selector: soupsieve.SoupSieve, tag: Tag) -> bool:
        matched.append(tag)
        return match(selector, tag)

    monkeypatch.setattr(soupsieve.SoupSieve, "match", record)
    number = 60
    rules = "".join(f".c{place} p, .n{place} + p {{display:none}}" for place in range(number))
    cards = "".join(f"<div class='c{place}'><p>no</p></div>" for place in range(number))
    beside = "".join(f"<div><i class='n{place}'></i><p>no</p></div>" for place in range(number))
    assert extract_prose(f"<style>{rules}</style>{cards}{beside}yes").text == "yes"
    assert len(matched) == 2 * number
