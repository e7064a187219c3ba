"""Saved pages of patents: the files in a folder, and the fields, dates and text of a page."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from made_patents import ABSTRACT, CLAIMS, DESCRIPTION, TITLE, page, sort_items

from audit_pipeline.sources.base import UnusableDocumentError
from audit_pipeline.sources.patents.fetch import read_saved_pages
from audit_pipeline.sources.patents.page import parse_page
from audit_pipeline.sources.patents.record import Patent

TODAY = date(2024, 12, 31)


def parsed(source: str) -> Patent:
    return parse_page(source.encode(), TODAY)


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


def test_only_the_address_of_the_patent_itself_is_used() -> None:
    hostile = page().replace("https://patents.google.com/patent/CN112345678A/zh", "javascript:alert(1)")
    assert parsed(hostile).url == "https://patents.google.com/patent/CN112345678A/zh"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"published": None, "events": []}, "the patent has no publication date"),
        ({"priority": None, "events": []}, "the patent has no priority date"),
        ({"meta_published": "2021-02-10"}, "the patent has different publication dates: 2021-02-09 and 2021-02-10"),
        ({"shown_published": "2021-03-09"}, "the patent has different publication dates: 2021-02-09 and 2021-03-09"),
        (
            {"events": [("publication", "Publication of CN112345678A", "2021-02-19")]},
            "the patent has different publication dates: 2021-02-09 and 2021-02-19",
        ),
        (
            {"events": [("priority", "Priority to CN202010000001.1A", "2020-01-02")]},
            "the patent has different priority dates: 2020-01-02 and 2020-10-12",
        ),
        ({"priority": "2020-10-13"}, "the priority date 2020-10-13 is after the filing date 2020-10-12"),
        ({"filed": "2021-02-10"}, "the filing date 2021-02-10 is after the publication date 2021-02-09"),
        (
            {"filed": None, "priority": "2021-02-10"},
            "the priority date 2021-02-10 is after the publication date 2021-02-09",
        ),
        ({"published": "2025-01-01"}, "the publication date is in the future: 2025-01-01"),
        ({"published": "2021-02-30"}, "publicationDate is not a date that can be read: '2021-02-30'"),
        ({"published": "9. Februar 2021"}, "publicationDate is not a date that can be read: '9. Februar 2021'"),
    ],
)
def test_inconsistent_dates_are_refused(changes: dict[str, object], expected: str) -> None:
    assert reason(page(**changes)) == expected  # type: ignore[arg-type]


def test_the_timeline_replaces_missing_dates_of_the_header() -> None:
    source = page().replace('itemprop="priorityDate"', 'itemprop="x"').replace('itemprop="publicationDate"', "x")
    source = source.replace('<meta name="DC.date" content="2021-02-09">', "")
    patent = parsed(source)
    assert (patent.published, patent.priority) == (date(2021, 2, 9), date(2020, 10, 12))


def test_other_publications_in_the_timeline_are_ignored() -> None:
    """The patent is granted: its application was published before, and a foreign application claims its priority."""
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
def test_other_pages_are_refused(source: str) -> None:
    assert reason(source).startswith("the file is not a page of Google Patents as the server sends it")


def test_contradictory_numbers_are_refused() -> None:
    source = page().replace('content="CN:112345678:A"', 'content="CN:112345679:A"')
    assert reason(source) == "the page contains different publication numbers: CN112345678A and CN112345679A"


def test_a_truncated_page_yields_its_complete_parts() -> None:
    source = page()
    cut = source[: source.index(DESCRIPTION[-1])]
    patent = parsed(cut)
    assert patent.parts["abstract"] == ABSTRACT
    assert patent.parts["claims"] == ""


def test_deep_and_hostile_markup_is_harmless() -> None:
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


def test_pages_of_a_folder_are_read_and_other_files_are_reported(tmp_path: Path) -> None:
    folder, outside = tmp_path / "pages", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "x.html").write_text("must not be read")
    (folder / "a.html").write_bytes(b"page a")
    (folder / "deep" / "b.HTM").write_bytes(b"page b")
    (folder / "note.txt").write_text("x")
    (folder / ".hidden.html").write_text("x")
    (folder / "away.html").symlink_to(outside / "x.html")
    (folder / "away").symlink_to(outside)
    (folder / "dangling.html").symlink_to(folder / "nowhere.html")
    pages, left_out, missing = sort_items(read_saved_pages(folder))
    assert dict(pages) == {"a.html": b"page a", "deep/b.HTM": b"page b"}
    assert left_out.keys() == {"note.txt", "away.html", "away"}
    assert missing.keys() == {"dangling.html"}
    assert left_out["away.html"] == "the file is a link to a place outside the folder"
    assert "cannot be read" in missing["dangling.html"]


def test_a_page_may_be_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(b"x")
    assert sort_items(read_saved_pages(tmp_path / "a.html"))[0] == [("a.html", b"x")]
    assert "no such file or folder" in sort_items(read_saved_pages(tmp_path / "b.html"))[2]["b.html"]
