"""One page: its charset, fields, dates and text."""

from __future__ import annotations

from datetime import date

import pytest
from made_patents import ABSTRACT, CLAIMS, DESCRIPTION, TITLE, page

from audit_pipeline.sources.base import UnusableDocumentError
from audit_pipeline.sources.patents.page import parse_page
from audit_pipeline.sources.patents.record import Patent

TODAY = date(2024, 12, 31)


def parsed(source: str | bytes) -> Patent:
    content = source.encode() if isinstance(source, str) else source
    return parse_page(content, TODAY)


def reason(source: str) -> str:
    with pytest.raises(UnusableDocumentError) as caught:
        parsed(source)
    return str(caught.value)


def test_fields_of_a_page() -> None:
    patent = parsed(page())
    assert (patent.number, patent.country, patent.title) == ("CN112345678A", "CN", TITLE)
    assert (patent.published, patent.priority) == (date(2021, 2, 9), date(2020, 10, 12))
    assert patent.keys == ("family:74512345", "application:CN202011084321")
    assert patent.url == "https://patents.google.com/patent/CN112345678A/zh"
    assert patent.parts["abstract"].split("\n") == [ABSTRACT]
    assert [line.strip() for line in patent.parts["description"].split("\n") if line.strip()] == list(DESCRIPTION)
    assert [line.strip() for line in patent.parts["claims"].split("\n") if line.strip()] == list(CLAIMS)


def test_a_translated_page_gives_the_original_passages() -> None:
    plain, translated = parsed(page()), parsed(page(translated=True))
    for part in ("abstract", "description", "claims"):
        assert translated.parts[part].split() == plain.parts[part].split()
        assert "machine translation" not in translated.parts[part]


def test_a_page_names_no_address_but_its_own() -> None:
    hostile = page().replace("https://patents.google.com/patent/CN112345678A/zh", "javascript:alert(1)")
    assert parsed(hostile).url == "https://patents.google.com/patent/CN112345678A/zh"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"published": None, "events": []}, "no publication date"),
        ({"priority": None, "events": []}, "no priority date"),
        ({"meta_published": "2021-02-10"}, "contradictory publication dates: 2021-02-09 and 2021-02-10"),
        ({"shown_published": "2021-03-09"}, "contradictory publication dates: 2021-02-09 and 2021-03-09"),
        (
            {"events": [("publication", "Publication of CN112345678A", "2021-02-19")]},
            "contradictory publication dates: 2021-02-09 and 2021-02-19",
        ),
        (
            {"events": [("priority", "Priority to CN202010000001.1A", "2020-01-02")]},
            "contradictory priority dates: 2020-01-02 and 2020-10-12",
        ),
        ({"priority": "2020-10-13"}, "priority date after filing date: 2020-10-13 and 2020-10-12"),
        ({"filed": "2021-02-10"}, "filing date after publication date: 2021-02-10 and 2021-02-09"),
        ({"filed": None, "priority": "2021-02-10"}, "priority date after publication date: 2021-02-10 and 2021-02-09"),
        ({"published": "2025-01-01"}, "publication date in the future: 2025-01-01"),
        ({"published": "2021-02-30"}, "unreadable date: publicationDate is '2021-02-30'"),
        ({"published": "9. Februar 2021"}, "unreadable date: publicationDate is '9. Februar 2021'"),
    ],
)
def test_dates_that_do_not_hold(changes: dict[str, object], expected: str) -> None:
    assert reason(page(**changes)) == expected  # type: ignore[arg-type]


def test_the_timeline_stands_in_for_the_header() -> None:
    source = page().replace('itemprop="priorityDate"', 'itemprop="x"').replace('itemprop="publicationDate"', "x")
    source = source.replace('<meta name="DC.date" content="2021-02-09">', "")
    patent = parsed(source)
    assert (patent.published, patent.priority) == (date(2021, 2, 9), date(2020, 10, 12))


def test_other_publications_and_priorities_of_the_timeline_are_not_this_ones() -> None:
    """A granted patent: its application was published before, a foreign one took priority from it later."""
    events = [
        ("filed", "Application filed by 某某竹艺有限公司", "2020-10-12"),
        ("priority", "Priority to CN202011084321.5A", "2020-10-12"),
        ("priority", "Priority to PCT/CN2021/123456", "2021-10-11"),
        ("publication", "Publication of CN112345678A", "2021-02-09"),
        ("granted", "Application granted", "2022-08-19"),
        ("publication", "Publication of CN112345678B", "2022-08-19"),
    ]
    patent = parsed(page("CN112345678B", published="2022-08-19", events=events))
    assert patent.published == date(2022, 8, 19)
    assert patent.keys == ("family:74512345", "application:CN202011084321", "application:PCT/CN2021/123456")


@pytest.mark.parametrize("source", ["", "   ", "<html><body>404</body></html>", "nonsense", "<!-- x -->", "\x00\x01"])
def test_what_is_no_patent_page(source: str) -> None:
    assert reason(source) == "not the source of a patent page"


def test_two_numbers_contradict() -> None:
    source = page().replace('content="CN:112345678:A"', 'content="CN:112345679:A"')
    assert reason(source) == "contradictory publication numbers: CN112345678A and CN112345679A"


def test_a_broken_page_gives_what_is_there() -> None:
    source = page()
    cut = source[: source.index(DESCRIPTION[-1])]
    patent = parsed(cut)
    assert patent.parts["abstract"] == ABSTRACT
    assert patent.parts["claims"] == ""


def test_deep_and_hostile_markup_ends() -> None:
    deep = page(abstract="<div>" * 5000 + "灯" + "</div>" * 5000)
    assert parsed(deep).number == "CN112345678A"
    entities = '<!DOCTYPE html [<!ENTITY a "灯灯灯灯"><!ENTITY b "&a;&a;&a;"><!ENTITY x SYSTEM "file:///etc/passwd">]>'
    patent = parsed(page(abstract="甲&b;&x;乙").replace("<!DOCTYPE html>", entities))
    assert "root:" not in patent.parts["abstract"]
    assert "灯灯" not in patent.parts["abstract"]


def test_scripts_tables_and_formulas() -> None:
    inner = "甲<sub>1</sub><script>var x = '不要';</script>"
    inner += "<table><tr><td>长</td><td>宽</td></tr></table><img alt='图'>乙<br>丙"
    assert parsed(page(abstract=inner)).parts["abstract"].split() == ["甲1", "长", "宽", "乙", "丙"]
