"""Standard Ebooks: feeds and books laid out as theirs, invented, served on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from made_books import Library, impatient_client
from made_epubs import epub, page

from audit_pipeline.errors import SourceError
from audit_pipeline.readers.whole_files.epub import read_epub
from audit_pipeline.sources.base import Harvest, collect
from audit_pipeline.sources.books.book_folder import BookEntry, Dating
from audit_pipeline.sources.books.source import StandardEbooksSettings
from audit_pipeline.sources.books.standard_ebooks import (
    LICENCE,
    dating_from_colophon,
    epub_address,
    harvest_standard_ebooks,
    read_feed,
)

CHAPTER = "The lamps were lit before the carriage came down the long hill to the town. " * 6


def se_book(published: str) -> bytes:
    colophon = (
        '<section id="colophon" epub:type="colophon"><header><h2>Colophon</h2></header>'
        f'<p><i>The Lamp</i><br/>\n{published}<br/><a href="x">Ada Miller</a>.</p>'
        "<p>This ebook was produced for the<br/>Standard Ebooks project<br/>by<br/>"
        "Ann Other,<br/>and is based on a transcription produced in 2006.</p>"
        "<p>The cover page is adapted from a painting completed in 1830.</p></section>"
    )
    return epub(
        {
            "text/titlepage.xhtml": page('<section epub:type="titlepage"><h1>The Lamp</h1></section>', "frontmatter"),
            "text/chapter-1.xhtml": page(f'<section epub:type="chapter"><h2>I</h2><p>{CHAPTER}</p></section>'),
            "text/colophon.xhtml": page(colophon, "backmatter"),
        }
    )


def entry(identity: str, links: str, site: str = "https://standardebooks.org") -> str:
    return (
        f"<entry><id>{site}/ebooks/{identity}</id><title>The Lamp</title><author><name>Ada Miller</name></author>"
        f"<published>2023-11-27T02:12:19Z</published>{links}</entry>"
    )


def feed(*entries: str, following: str = "") -> bytes:
    link = f'<link rel="next" href="{following}"/>' if following else ""
    return (
        f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>New</title>{link}{"".join(entries)}</feed>'
    ).encode()


def link(href: str, media: str = "application/epub+zip") -> str:
    return f'<link href="{href}" rel="enclosure" type="{media}"/>'


@pytest.fixture
def shelf() -> Iterator[Library]:
    with Library() as served:
        yield served


def settings(shelf: Library, **changes: object) -> StandardEbooksSettings:
    return StandardEbooksSettings.model_validate({"site": shelf.url, **changes})


def harvest(given: StandardEbooksSettings, folder: Path, dates: dict[str, BookEntry] | None = None) -> Harvest:
    with impatient_client(folder) as client:
        return collect(harvest_standard_ebooks(given, client, dates or {}))


@pytest.mark.parametrize(
    ("published", "dating"),
    [
        ("was published in 1871 by", Dating(date(1871, 12, 31), date(1871, 1, 1))),
        ("was published serially between 1871 and 1873 by", Dating(date(1873, 12, 31), date(1871, 1, 1))),
        (
            "was published in 1871 and translated from the Danish in 1909 by",
            Dating(date(1909, 12, 31), date(1871, 1, 1)),
        ),
        ("was completed in 1871–73 by", Dating(date(1873, 12, 31), date(1871, 1, 1))),
        # A title is no date.
        ("1830: A Tale<br/>was published in 1871 by", Dating(date(1871, 12, 31), date(1871, 1, 1))),
        ("was published in antiquity by", None),
        ("is by", None),
    ],
)
def test_the_colophon_dates_the_work(published: str, dating: Dating | None) -> None:
    assert dating_from_colophon(read_epub(se_book(published))) == dating


def test_a_feed_of_either_kind() -> None:
    given = StandardEbooksSettings()
    base = "https://standardebooks.org/ebooks/ada-miller/the-lamp/downloads"
    got = read_feed(
        feed(
            entry(
                "ada-miller/the-lamp",
                link(f"{base}/a_advanced.epub") + link(f"{base}/a.epub") + link(f"{base}/a.azw3", "x"),
            ),
            entry("ada-miller/the-sea/bo-lind", link("/ebooks/b.epub?source=feed")),
            entry("ada-miller/away", link("https://elsewhere.example/b.epub")),
            entry("ada-miller/nothing", ""),
            entry("", link(f"{base}/a.epub")),
            following="/feeds/atom/all?page=2",
        ),
        "https://standardebooks.org/feeds/atom/all",
        given,
    )
    assert [(book.identity, book.title, book.author, book.epub) for book in got.books] == [
        ("ada-miller/the-lamp", "The Lamp", "Ada Miller", f"{base}/a.epub?source=feed"),
        (
            "ada-miller/the-sea/bo-lind",
            "The Lamp",
            "Ada Miller",
            "https://standardebooks.org/ebooks/b.epub?source=feed",
        ),
    ]
    assert got.following == "https://standardebooks.org/feeds/atom/all?page=2"
    assert [item.reason.split(":")[0] for item in got.left_out] == [
        "no EPUB of this library in its entry",
        "no EPUB of this library in its entry",
        "its id is not that of a book",
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<feed", "not a feed that can be read"),
        (b"<html/>", "not an Atom or OPDS feed but <html>"),
        (b'<!DOCTYPE f [<!ENTITY a "aa">]><feed>&a;</feed>', "defines entities"),
    ],
)
def test_what_is_no_feed_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        read_feed(content, "https://standardebooks.org/feeds/atom/all", StandardEbooksSettings())


def test_a_harvest_of_a_feed_in_two_pages_and_of_a_list(shelf: Library, tmp_path: Path) -> None:
    shelf.pages["/feed"] = feed(entry("ada-miller/the-lamp", link("/lamp.epub"), shelf.url), following="/feed?page=2")
    shelf.pages["/feed?page=2"] = feed(
        entry("ada-miller/the-sea", link("/sea.epub"), shelf.url),
        entry("ada-miller/broken", link("/broken.epub"), shelf.url),
        entry("ada-miller/gone", link("/gone.epub"), shelf.url),
        following="/feed",
    )
    shelf.pages["/lamp.epub?source=feed"] = se_book("was published in 1871 by")
    shelf.pages["/sea.epub?source=feed"] = se_book("was published by")
    shelf.pages["/broken.epub?source=feed"] = b"PK broken"
    listed = "/ebooks/bo-lind/the-hill/ann_other/downloads/bo-lind_the-hill_ann_other.epub?source=feed"
    shelf.pages[listed] = se_book("was published in 1902 by")
    given = settings(shelf, feed=f"{shelf.url}/feed", ids=["bo-lind/the-hill/ann_other", "ada-miller/the-lamp"])
    shelf.pages[epub_address("ada-miller/the-lamp", given).removeprefix(shelf.url)] = se_book(
        "was published in 1871 by"
    )

    got = harvest(given, tmp_path, {"bo-lind/the-hill/ann_other": BookEntry("d:2", "x", Dating(date(1901, 3, 1)))})
    documents = {document.name: document for document in got.documents}
    assert list(documents) == ["bo-lind/the-hill/ann_other", "ada-miller/the-lamp"]
    lamp = documents["ada-miller/the-lamp"]
    assert lamp.text.startswith("I\n\nThe lamps were lit")
    assert "Colophon" not in lamp.text
    assert (lamp.published, lamp.earliest) == (date(1871, 12, 31), date(1871, 1, 1))
    assert (lamp.collection, lamp.language, lamp.licence) == ("standard_ebooks", "en", LICENCE)
    assert lamp.url == f"{shelf.url}/ebooks/ada-miller/the-lamp"
    assert documents["bo-lind/the-hill/ann_other"].published == date(1901, 3, 1)
    assert [(item.name, item.collection) for item in got.missing] == [("ada-miller/gone", "standard_ebooks")]
    reasons = {item.part.rpartition("/")[2]: item.reason for item in got.left_out}
    assert "does not say when the work was first published" in reasons["the-sea"]
    assert "not a zip file" in reasons["broken"]


def test_the_limit_is_said(shelf: Library, tmp_path: Path) -> None:
    shelf.pages["/feed"] = feed(*(entry(f"ada-miller/b{n}", link(f"/{n}.epub"), shelf.url) for n in range(4)))
    shelf.pages.update({f"/{n}.epub?source=feed": se_book("was published in 1871 by") for n in range(4)})
    got = harvest(settings(shelf, feed=f"{shelf.url}/feed", limit=2), tmp_path)
    assert [document.name for document in got.documents] == ["ada-miller/b0", "ada-miller/b1"]
    assert got.left_out[0].reason == "2 more books are listed; books.standard_ebooks.limit is 2"
    assert "/2.epub?source=feed" not in shelf.asked()


def test_a_feed_for_members_says_what_else_there_is(shelf: Library, tmp_path: Path) -> None:
    shelf.pages["/feed"] = 401
    got = harvest(settings(shelf, feed=f"{shelf.url}/feed"), tmp_path)
    assert got.documents == ()
    assert "Patrons Circle" in got.missing[0].reason
    assert got.missing[0].held("standard_ebooks", "ada-miller/the-lamp")
