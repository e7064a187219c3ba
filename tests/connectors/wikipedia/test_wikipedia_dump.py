"""Exports of MediaWiki: dates from histories, the revision of a day, what is left out, damaged and hostile files."""

from __future__ import annotations

import bz2
import gzip
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_wikipedia import FAIR, FAIR_BY_2016, FAIR_LATER, FLOOD, FLOOD_LATER, PAGES, Rev, export, page

from audit_pipeline.connectors.wikipedia.dump import dates_from_history, harvest_dump, read_dump
from audit_pipeline.connectors.wikipedia.pages import CreationDates
from audit_pipeline.connectors.wikipedia.settings import WikipediaSettings
from audit_pipeline.connectors.wikipedia.wikitext import MOST_CHARACTERS
from audit_pipeline.errors import DataError
from audit_pipeline.sources.base import Harvest

NO_DATES = CreationDates()
NO_DATE = "no date of creation: its first revision is not here, and `dates` does not name it"


def harvested(path: Path, dates: CreationDates = NO_DATES, **settings: object) -> Harvest:
    return harvest_dump(WikipediaSettings(dump=path, **settings), dates)


def left_out(harvest: Harvest) -> dict[str, str]:
    return {item.part: item.reason for item in harvest.left_out}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "packed"), [("w.xml", bytes), ("w.xml.bz2", bz2.compress), ("w.xml.gz", gzip.compress)]
)
def test_event_pages_with_their_first_day_and_newest_text(
    tmp_path: Path, name: str, packed: Callable[[bytes], bytes]
) -> None:
    harvest = harvested(written(tmp_path / name, packed(export(PAGES))))
    assert harvest.missing == ()
    found = {one.title: one for one in harvest.documents}
    assert set(found) == {"2023 Orla floods", "Velm fair"}
    flood = found["2023 Orla floods"]
    assert (flood.published, flood.text) == (date(2023, 2, 1), "The 2023 Orla floods began and ended.")
    assert (flood.collection, flood.name, flood.group) == ("events", "1", None)
    assert (flood.date_kind, flood.licence, flood.language) == ("first revision", "CC BY-SA 4.0", "en")
    assert flood.url == "https://en.wikipedia.org/w/index.php?curid=1&oldid=12"
    assert (found["Velm fair"].published, found["Velm fair"].text) == (date(2015, 6, 30), "The Velm fair of 2017.")
    assert left_out(harvest) == {
        f"{name}: 2 pages (List of floods in 2023, Timeline of Velm, 2023)": "a timeline or list by its title",
        f"{name}: 1 page (Orla)": "not an event page by title or category",
        f"{name}: 1 page (2023 flood)": "a redirect",
        f"{name}: 1 page (Talk:2023 Orla floods)": "not an article (another namespace)",
        f"{name}: 2023 Velm election": NO_DATE,
        f"{name}: 2023 Velm quake": "its text is empty",
    }


def test_text_as_of_a_day_where_the_page_existed_and_the_newest_where_not(tmp_path: Path) -> None:
    harvest = harvested(written(tmp_path / "w.xml", export(PAGES)), as_of=date(2016, 12, 31))
    assert {one.title: one.text for one in harvest.documents} == {
        "Velm fair": "The Velm fair of 2016.",
        "2023 Orla floods": "The 2023 Orla floods began and ended.",
    }
    assert {one.url.rpartition("=")[2] for one in harvest.documents} == {"22", "12"}


def test_a_dump_of_current_pages_takes_its_dates_from_the_table(tmp_path: Path) -> None:
    current = [
        page(1, "2023 Orla floods", FLOOD_LATER),
        page(2, "Velm fair", FAIR_LATER),
        page(3, "2020 X", Rev(3, 0, "2020-01-02T00:00:00Z", "One edit.")),
    ]
    path = written(tmp_path / "w.xml", export(current))
    without = harvested(path)
    assert [one.published for one in without.documents] == [date(2020, 1, 2)]  # its only revision is its first
    assert len(without.left_out) == 2
    dates = CreationDates([1, 2], [date(2023, 2, 1), date(2015, 6, 30)])
    assert [one.published for one in harvested(path, dates).documents] == [
        date(2023, 2, 1),
        date(2015, 6, 30),
        date(2020, 1, 2),
    ]
    as_of = harvested(path, dates, as_of=date(2016, 12, 31))
    assert [one.title for one in as_of.documents] == ["2023 Orla floods", "2020 X"]
    assert left_out(as_of) == {"w.xml: Velm fair": "existed on 2016-12-31, but its text here is of 2017-01-01"}


def test_part_of_a_history_does_not_date_a_page(tmp_path: Path) -> None:
    path = written(tmp_path / "w.xml", export([page(2, "Velm fair", FAIR_BY_2016, FAIR_LATER)]))
    assert harvested(path).documents == ()
    assert [one.created for one in read_dump(path)] == [None]


def test_the_choice_of_event_pages_can_be_set(tmp_path: Path) -> None:
    path = written(tmp_path / "w.xml", export(PAGES))
    by_title = harvested(path, event_category=None)
    assert [one.title for one in by_title.documents] == ["2023 Orla floods"]
    every = harvested(path, event_title=None, event_category=None, left_out_title=None)
    assert {one.name for one in every.documents} == {"1", "2", "3", "4", "5"}


def test_a_folder_of_parts(tmp_path: Path) -> None:
    written(tmp_path / "w1.xml.bz2", bz2.compress(export(PAGES[:1])))
    written(tmp_path / "w2.xml.gz", gzip.compress(export(PAGES[1:2])))
    written(tmp_path / "notes.txt", b"not a dump")
    assert [one.name for one in harvested(tmp_path).documents] == ["1", "2"]
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "absent.xml"):
        (missing,) = harvested(path).missing
        assert missing.collection == "events"


def test_a_truncated_file_keeps_what_came_before_and_names_the_rest(tmp_path: Path) -> None:
    many = [
        page(n, f"2023 event {n}", Rev(n, 0, "2023-01-01T00:00:00Z", f"Event {n}. {n * 7919} " * 200))
        for n in range(1, 100)
    ]
    whole = export(many)
    packed = bz2.compress(whole, 1)  # blocks of 100 kB
    for name, content in (("w.xml.bz2", packed[: len(packed) * 2 // 3]), ("w.xml", whole[: len(whole) // 2])):
        harvest = harvested(written(tmp_path / name, content))
        assert 0 < len(harvest.documents) < 99
        (missing,) = harvest.missing
        assert f"breaks off after {len(harvest.documents)} pages" in missing.reason
        assert (missing.part, missing.collection, missing.name) == (name, "events", None)
    damaged = harvested(written(tmp_path / "w.xml.bz2", b"BZh9 this is none"))
    assert damaged.documents == ()
    assert "breaks off after 0 pages" in damaged.missing[0].reason


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("prologue", [LAUGHS, OUTSIDE, '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd">'])
def test_document_types_and_entities_are_refused(tmp_path: Path, prologue: str) -> None:
    path = written(tmp_path / "w.xml", export(PAGES, prologue=prologue))
    harvest = harvested(path)
    assert harvest.documents == ()
    assert "declares a document type or entities" in harvest.missing[0].reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html><body>Not found</body></html>", "begins with <html>"),
        (b"", "is no MediaWiki export"),
        (b"plain words", "breaks off after 0 pages"),
        (export(PAGES, version="0.5"), "is of export format 0.5"),
        (b"<mediawiki version='0.10'>" + b"<a>" * 50, "nests more than 20"),
    ],
)
def test_files_that_are_no_export(tmp_path: Path, content: bytes, reason: str) -> None:
    harvest = harvested(written(tmp_path / "w.xml", content))
    assert harvest.documents == ()
    assert reason in harvest.missing[0].reason


def test_a_text_longer_than_a_page_may_be_is_named_and_does_not_fill_memory(tmp_path: Path) -> None:
    long = page(1, "2023 long", Rev(1, 0, "2023-01-01T00:00:00Z", "x" * (MOST_CHARACTERS + 1)))
    path = written(
        tmp_path / "w.xml.gz", gzip.compress(export([long, PAGES[0].replace("<id>1</id>", "<id>2</id>", 1)]))
    )
    harvest = harvested(path)
    assert [one.name for one in harvest.documents] == ["2"]
    assert "longer than the" in left_out(harvest)["w.xml.gz: 2023 long"]


def test_a_long_history_takes_the_memory_of_two_texts(tmp_path: Path) -> None:
    text = "words and more words " * 10_000  # 210 kB a revision, 42 MB in all
    revisions = (Rev(n, n - 1, f"2023-01-01T00:{n // 60:02}:{n % 60:02}Z", text) for n in range(1, 200))
    path = written(tmp_path / "w.xml.gz", gzip.compress(export([page(1, "2023 long history", *revisions)]), 1))
    del revisions
    tracemalloc.start()
    (found,) = read_dump(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.wanted is not None
    assert found.wanted.revision_id == 199
    assert peak < 4_000_000


def test_a_tag_that_never_ends_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "w.xml.gz", gzip.compress(b"<mediawiki version='0.10'><page a='" + b"x" * 10_000_000))
    with pytest.raises(DataError, match="without any element or text"):
        list(read_dump(path))


def test_spoilt_pages_are_named_and_the_others_taken(tmp_path: Path) -> None:
    no_time = page(1, "2023 a", Rev(1, 0, "yesterday", "Text."))
    no_id = page(2, "2023 b", Rev(2, 0, "2023-01-01T00:00:00Z", "Text.")).replace("<id>2</id>", "<id>two</id>", 1)
    deleted = page(3, "2023 c", Rev(3, 0, "2023-01-01T00:00:00Z", "Text.")).replace(
        "<text ", '<text deleted="deleted" '
    )
    harvest = harvested(written(tmp_path / "w.xml", export([no_time, no_id, deleted, PAGES[0]])))
    assert [one.title for one in harvest.documents] == ["2023 Orla floods"]
    assert left_out(harvest) == {
        "w.xml: 2023 a": "no revision that can be read",
        "w.xml: 2023 b": "no page id",
        "w.xml: 2023 c": "its text is deleted",
    }


def test_many_spoilt_pages_are_counted_beyond_those_named(tmp_path: Path) -> None:
    pages = [page(n, f"2023 event {n}", Rev(n, n - 1, "2023-01-01T00:00:00Z", "Text.")) for n in range(2, 702)]
    harvest = harvested(written(tmp_path / "w.xml", export(pages)))
    assert len(harvest.left_out) == 501
    assert harvest.left_out[-1].part == "w.xml: 200 pages more"


def test_dates_from_a_dump_of_histories_without_texts(tmp_path: Path) -> None:
    stubs = [
        page(2, "Velm fair", FAIR, FAIR_BY_2016, stub=True),
        page(1, "2023 Orla floods", FLOOD_LATER, FLOOD, stub=True),  # imported: the older one comes later
        page(7, "Talk:Velm", Rev(71, 0, "2020-01-01T00:00:00Z"), namespace=1, stub=True),
        page(8, "Torn", Rev(82, 81, "2020-01-01T00:00:00Z"), stub=True),
    ]
    dates = dates_from_history(written(tmp_path / "stub.xml.gz", gzip.compress(export(stubs))))
    assert {number: dates.get(number) for number in range(10) if dates.get(number) is not None} == {
        2: date(2015, 6, 30),
        1: date(2023, 2, 1),
    }
    assert len(dates_from_history(written(tmp_path / "none.xml", export([])))) == 0
    for path in (tmp_path / "absent.xml", written(tmp_path / "half.xml", export(stubs)[:-30])):
        with pytest.raises(DataError):
            dates_from_history(path)


DAYS = st.dates(date(2010, 1, 1), date(2025, 12, 31))


@given(st.lists(DAYS, min_size=1, max_size=6), DAYS)
def test_first_day_and_revision_of_a_day_against_a_plain_reading(days: list[date], as_of: date) -> None:
    revisions = [
        Rev(n, n - 1, f"{day.isoformat()}T{n:02}:00:00Z", f"Text {n}.") for n, day in enumerate(sorted(days), 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "w.xml", export([page(1, "2023 event", *revisions)]))
        (found,) = read_dump(path, as_of)
    by_then = [n for n, day in enumerate(sorted(days), 1) if day <= as_of]
    assert found.created == min(days)
    assert found.wanted is not None
    assert found.wanted.revision_id == (by_then[-1] if by_then else len(days))


@pytest.mark.parametrize(
    ("title", "category", "expected"),
    [
        ("2023 Orla floods", "", True),
        ("Velm election, 2023", "", True),
        ("Velm Cup (2023)", "", True),
        ("2023–24 Velm season", "", True),
        ("2023年奥拉洪水", "", True),
        ("Velm 20231", "", False),
        ("Orla", "2023 floods in Asia", True),
        ("Orla", "Events in Velm", True),
        ("Orla", "2023年自然灾害", True),
        ("Ann", "1950 births", False),
        ("Ann", "2023 deaths", False),
        ("Ann", "1950年出生", False),
        ("A song", "2023 songs", False),
        ("A film", "2023 American films", False),
        ("A town", "1850 establishments in Velm", False),
        ("A decade", "1990s fashion", False),
        ("A river", "Rivers of 2023", False),
    ],
)
def test_default_choice_of_event_pages(tmp_path: Path, title: str, category: str, expected: bool) -> None:
    text = f"Some words. [[Category:Other things]] [[Category:{category}|key]]" if category else "Some words."
    harvest = harvested(written(tmp_path / "w.xml", export([page(1, title, Rev(1, 0, "2023-01-01T00:00:00Z", text))])))
    assert Counter(one.title for one in harvest.documents) == Counter([title] if expected else [])
