"""Project Gutenberg: a small catalogue and invented books on a local server."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from bad_server import Answer, BadServer, fault

from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import FetchedDocuments, LeftOut, collect
from audit_pipeline.sources.books.book_folder import BookEntry, Dating
from audit_pipeline.sources.books.fetch import (
    COPYRIGHTED,
    LICENCE,
    CatalogueBook,
    choose_books,
    fetch_gutenberg,
    parse_gutenberg_dating,
    read_catalogue,
)
from audit_pipeline.sources.books.source import GutenbergSettings
from audit_pipeline.sources.web.polite_client import PoliteClient, Politeness

CATALOGUE = """Text#,Type,Issued,Title,Language,Authors,Subjects,LoCC,Bookshelves
7,Text,1998-06-01,"The Lamp
Or, the Hill",en,"Miller, Ada, 1820-1878; Lind, Bo [Illustrator]",Lamps -- Fiction; Hills,PR,Best Books; Category: Old
12,Text,1999-06-01,Die Lampe,de,"Müller, Ada",Lamps -- Fiction,PT,
1342,Text,2000-06-01,The Fire,en; fr,,Fires,PR,Best Books
13,Sound,2001-06-01,The Lamp (read),en,,Lamps,PR,
20,Text,2002-06-01,The Sea,en,"Lind, Bo, -1901",Sea stories,PR,
nonsense,Text,2002-06-01,Bad,en,,,,
21,Text,2002
"""
RUNNING = "\n".join(["The lamps were lit before the carriage came down the long hill to the town,"] * 6)


def text(original: str = "", head: str = "", body: str = RUNNING) -> bytes:
    return (
        "\ufeffThe Project Gutenberg eBook of The Lamp\r\n"
        f"{head}\r\nTitle: The Lamp\r\n\r\nRelease date: June 1, 1998 [eBook #7]\r\n\r\n{original}\r\n"
        f"*** START OF THE PROJECT GUTENBERG EBOOK THE LAMP ***\r\n\r\nProduced by Ann Other\r\n\r\n\r\n{body}\r\n\r\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK THE LAMP ***\r\nLicence\r\n"
    ).encode()


ORIGINAL = "Original publication: London: Fox and\r\n        Sons, 1871\r\n\r\nCredits: Ann Other, 2021\r\n"


@pytest.fixture
def mirror(server: BadServer) -> BadServer:
    """Serve the catalogue. All other addresses are 404."""
    server.serve("/feeds/pg_catalog.csv", Answer(CATALOGUE.encode(), "application/octet-stream"))
    return server


def serve_books(mirror: BadServer, **books: bytes) -> None:
    """Serve books by number, such as ``_7``, in the cache of the mirror."""
    for name, content in books.items():
        number = name.removeprefix("_")
        mirror.serve(f"/pg/cache/epub/{number}/pg{number}.txt", Answer(content, "application/octet-stream"))


def fetch_all(
    mirror: BadServer, folder: Path, dates: dict[str, BookEntry] | None = None, **changes: object
) -> FetchedDocuments:
    addresses = {"mirror": f"{mirror.url}/pg/", "catalogue": f"{mirror.url}/feeds/pg_catalog.csv"}
    politeness = Politeness("ann@example.org", seconds_between=0, attempts=2, timeout=5)
    with PoliteClient(folder, politeness, sleep=lambda _: None) as client:
        settings = GutenbergSettings.model_validate({**addresses, **changes})
        return collect(fetch_gutenberg(settings, client, dates or {}))


def test_the_catalogue() -> None:
    rows = list(read_catalogue("\ufeff" + CATALOGUE))
    books = {row.number: row for row in rows if isinstance(row, CatalogueBook)}
    assert [number for number, book in books.items() if book.kind == "Text"] == [7, 12, 1342, 20]
    assert books[13].kind == "Sound"
    lamp = books[7]
    assert (lamp.title, lamp.author) == ("The Lamp Or, the Hill", "Miller, Ada")
    assert lamp.subjects == ("Lamps -- Fiction", "Hills")
    assert lamp.bookshelves == ("Best Books", "Category: Old")
    assert books[1342].languages == ("en", "fr")
    assert [books[number].author for number in (12, 1342, 20)] == ["Müller, Ada", None, "Lind, Bo"]
    assert [row.part for row in rows if isinstance(row, LeftOut)] == ["pg_catalog.csv:8", "pg_catalog.csv:9"]


@pytest.mark.parametrize("text", ["", "<html>Not found</html>", "a,b\n1,2\n"])
def test_other_texts_than_the_catalogue_are_refused(text: str) -> None:
    with pytest.raises(SourceError, match=r"lacks these columns: .*Text#"):
        list(read_catalogue(text))


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({}, {7, 1342, 20}),
        ({"languages": ["de", "fr"]}, {12, 1342}),
        ({"languages": []}, {7, 12, 1342, 20}),
        ({"subjects": ["LAMPS"]}, {7}),
        ({"subjects": ["lamps", "sea"], "languages": []}, {7, 12, 20}),
        ({"bookshelves": ["best"]}, {7, 1342}),
        ({"bookshelves": ["best"], "subjects": ["fires"]}, {1342}),
        ({"ids": [20, 12]}, {20, 12}),
    ],
)
def test_books_are_chosen_by_language_subject_and_bookshelf(changes: dict[str, object], numbers: set[int]) -> None:
    chosen, left_out = choose_books(list(read_catalogue(CATALOGUE)), GutenbergSettings.model_validate(changes))
    assert {book.number for book in chosen} == numbers
    assert [item.part for item in left_out] == ["pg_catalog.csv:8", "pg_catalog.csv:9"]


def test_a_growing_catalogue_does_not_change_the_order_of_the_choice() -> None:
    few, grown = (list(read_catalogue(CATALOGUE + more)) for more in ("", "30,Text,2003-01-01,New,en,,,,\n"))
    order = [book.number for book in choose_books(few, GutenbergSettings())[0]]
    assert [book.number for book in choose_books(grown, GutenbergSettings())[0] if book.number != 30] == order
    chosen, left_out = choose_books(few, GutenbergSettings(limit=2))
    assert [book.number for book in chosen] == order[:2]
    assert [item.reason for item in left_out[2:]] == ["1 more books match, but books.gutenberg.limit is 2"]
    assert choose_books(few, GutenbergSettings(limit=1), frozenset({str(order[2])}))[0][0].number == order[2]


def test_listed_numbers_without_a_text_are_reported() -> None:
    chosen, left_out = choose_books(list(read_catalogue(CATALOGUE)), GutenbergSettings(ids=(13, 99, 7, 7)))
    assert [book.number for book in chosen] == [7]
    assert [(item.part, item.reason) for item in left_out[2:]] == [
        ("gutenberg 13", "the kind of this book is Sound, but only the kind Text can be read"),
        ("gutenberg 99", "the catalogue contains no book with this number"),
    ]


@pytest.mark.parametrize(
    ("original", "dating"),
    [
        (ORIGINAL, Dating(date(1871, 12, 31), date(1871, 1, 1))),
        ("Original publication: 1871, reprinted 1902\r\n\r\n", Dating(date(1902, 12, 31), date(1871, 1, 1))),
        ("Original publication: London: Fox\r\n\r\nCredits: 2021\r\n", None),
        ("Original Publication: London: Fox, n.d.\r\n\r\n", None),
        ("", None),
    ],
)
def test_the_original_publication_dates_a_book(original: str, dating: Dating | None) -> None:
    assert parse_gutenberg_dating(text(original).decode().replace("\r\n", "\n")) == dating


def test_a_line_in_the_body_of_a_book_is_no_date() -> None:
    body = f"Original publication: 1871\n\n{RUNNING}"
    assert parse_gutenberg_dating(text(body=body).decode().replace("\r\n", "\n")) is None


def test_books_are_fetched_with_dates_licences_and_reasons(mirror: BadServer, tmp_path: Path) -> None:
    serve_books(mirror, _7=text(ORIGINAL), _20=text())
    copyrighted = text(ORIGINAL.replace("1871", "1899"), "** This is a COPYRIGHTED Project Gutenberg eBook **")
    mirror.serve("/pg/1/3/4/1342/1342.txt", Answer(copyrighted, "application/octet-stream"))
    got = fetch_all(mirror, tmp_path)
    documents = {document.name: document for document in got.documents}
    assert set(documents) == {"7", "1342"}
    lamp = documents["7"]
    assert lamp.text == RUNNING
    assert lamp.title == "The Lamp Or, the Hill, by Miller, Ada"
    assert (lamp.published, lamp.earliest, lamp.date_kind) == (
        date(1871, 12, 31),
        date(1871, 1, 1),
        "first publication",
    )
    assert (lamp.collection, lamp.language, lamp.licence, lamp.group) == ("gutenberg", "en", LICENCE, None)
    assert lamp.url == "https://www.gutenberg.org/ebooks/7"
    assert documents["1342"].licence == COPYRIGHTED
    assert got.missing == ()
    assert [item.part for item in got.left_out] == [
        "pg_catalog.csv:8",
        "pg_catalog.csv:9",
        "gutenberg 1342!front and back matter",
        "gutenberg 20 (The Sea)",
        "gutenberg 7!front and back matter",
    ]
    assert "header and licence of Project Gutenberg (" in got.left_out[2].reason
    assert "has no year of first publication" in got.left_out[3].reason

    first = len(mirror.asked())
    dated = fetch_all(mirror, tmp_path, {"20": BookEntry("dates.csv:2", "20", Dating(date(1880, 5, 1)), group="sea")})
    added = {document.name: document for document in dated.documents}["20"]
    assert (added.published, added.earliest, added.group) == (date(1880, 5, 1), None, "books:sea")
    # Cached pages are not requested again. Only missing addresses are.
    assert mirror.asked()[first:] == ["/pg/cache/epub/1342/pg1342.txt", "/pg/1/3/4/1342/1342-0.txt"]


def test_unavailable_books_are_missing_and_a_dead_mirror_is_spared(mirror: BadServer, tmp_path: Path) -> None:
    serve_books(mirror, _7=b"The Lamp \x00\x00")
    got = fetch_all(mirror, tmp_path, ids=[7, 12])
    assert got.documents == ()
    assert [(item.part, item.collection, item.name) for item in got.missing] == [
        ("gutenberg 12 (Die Lampe)", "gutenberg", "12")
    ]
    assert "a zero byte (after 9 characters)" in got.left_out[-1].reason

    for number in (12, 1342, 20):
        mirror.serve(f"/pg/cache/epub/{number}/pg{number}.txt", fault(503))
    mirror.requests.clear()
    again = fetch_all(mirror, tmp_path / "fresh", ids=[12, 1342, 20, 7])
    assert [item.name for item in again.missing] == ["12", "1342", "20", "7"]
    assert "not requested, because 3 requests in a row failed" in again.missing[-1].reason
    # Each book is requested twice, the number of attempts. Without a response, other addresses are not tried.
    assert len([path for path in mirror.asked() if "pg7" in path or "/7/" in path]) == 0
    assert len(mirror.asked()) == 1 + 3 * 2


def test_without_the_catalogue_the_whole_collection_is_missing(mirror: BadServer, tmp_path: Path) -> None:
    mirror.serve("/feeds/pg_catalog.csv", Answer(b"<html>"))
    got = fetch_all(mirror, tmp_path)
    assert got.documents == ()
    assert got.missing[0].can_contain("gutenberg", "7")
