"""Books in a folder, their metadata files, and the source of books."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from made_epubs import epub, page

from audit_pipeline.readers.dates import DATE_ADVICE, Dating
from audit_pipeline.readers.whole_files.document import NO_LINES
from audit_pipeline.sources.base import FetchedDocuments, LeftOut, collect
from audit_pipeline.sources.books.book_folder import BookEntry, fetch_folder, find_years, read_metadata
from audit_pipeline.sources.books.fetch import fetch_documents
from audit_pipeline.sources.books.source import BooksSettings

RUNNING = "\n".join(["The lamps were lit before the carriage came down the long hill to the town,"] * 6)
CHAPTER = " ".join(RUNNING.split())


def read(folder: Path) -> FetchedDocuments:
    return collect(fetch_folder(folder, "shelf", "en", "unknown"))


def metadata(folder: Path, *rows: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "books.csv").write_text(
        "\n".join(("file,title,author,published,language,licence,url,group,encoding", *rows)) + "\n"
    )


def test_books_are_read_from_txt_and_epub(tmp_path: Path) -> None:
    metadata(
        tmp_path,
        "lamp.txt,The Lamp,Ada Miller,1871,,CC0-1.0,https://example.org/lamp,lamp,",
        "new/lampe.epub,,,2024-06-03,de,,,lamp,",
        "latin.txt,Café,,1900-02,,,,,Latin-1",
    )
    (tmp_path / "lamp.txt").write_bytes(
        b"\xef\xbb\xbf" + f"THE LAMP\n\nby Ada Miller\n\n\n\nCHAPTER I\n\n\n{RUNNING}\n".replace("\n", "\r\n").encode()
    )
    (tmp_path / "latin.txt").write_bytes(f"{RUNNING} café".encode("latin-1"))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "lampe.epub").write_bytes(
        epub({"copyright.xhtml": page("<p>© 2024</p>"), "one.xhtml": page(f"<p>{CHAPTER}</p>")})
    )
    got = read(tmp_path)
    lamp, latin, lampe = got.documents
    assert (lamp.name, lamp.title, lamp.text) == ("lamp.txt", "The Lamp, by Ada Miller", f"CHAPTER I\n\n\n{RUNNING}")
    assert (lamp.published, lamp.earliest, lamp.date_kind) == (
        date(1871, 12, 31),
        date(1871, 1, 1),
        "first publication",
    )
    assert (lamp.language, lamp.licence, lamp.url) == ("en", "CC0-1.0", "https://example.org/lamp")
    assert latin.text == f"{RUNNING} café"
    assert (latin.published, latin.earliest, latin.group) == (date(1900, 2, 28), date(1900, 2, 1), None)
    assert (lampe.name, lampe.title, lampe.text) == ("new/lampe.epub", "The Lamp", CHAPTER)
    assert (lamp.places, lampe.places) == (NO_LINES, ((0, "chapter 1 (OPS/one.xhtml)"),))
    assert (lampe.published, lampe.earliest, lampe.language) == (date(2024, 6, 3), None, "de")
    assert lampe.url == (tmp_path / "new" / "lampe.epub").resolve().as_uri()
    assert lamp.group == lampe.group == "books:lamp"
    assert {document.collection for document in got.documents} == {"shelf"}
    assert got.missing == ()
    assert [(item.part, item.reason) for item in got.left_out] == [
        ("lamp.txt!front and back matter", "5 words are skipped: THE LAMP (5)"),
        ("new/lampe.epub!front and back matter", "2 words are skipped: copyright.xhtml (2)"),
    ]


def test_every_skipped_file_and_row_is_reported(tmp_path: Path) -> None:

    def reasons(got: FetchedDocuments) -> dict[str, str]:
        return {item.part: item.reason for item in got.left_out}

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(RUNNING)
    folder = tmp_path / "shelf"
    metadata(
        folder,
        "good.txt,,,1900,,,,,",
        "bad.txt,,,1900,,,,,",
        "zero.txt,,,1900,,,,,",
        "wide.txt,,,1900,,,,,",
        "matter.txt,,,1900,,,,,",
        "drm.epub,,,2024,,,,,",
        "part.epub,,,2024,,,,,",
        "old.mobi,,,1900,,,,,",
        "absent.txt,,,1900,,,,,",
        "undated.txt,,,,,,,,",
        "../outside/secret.txt,,,1900,,,,,",
        "away.txt,,,1900,,,,,",
        "greek.txt,,,1900,,,,,iso-8859-7",
        "good.txt,,,1901,,,,,",
    )
    (folder / "good.txt").write_text(RUNNING)
    (folder / "bad.txt").write_bytes(b"caf\xe9")
    (folder / "zero.txt").write_bytes(b"a\x00b")
    (folder / "wide.txt").write_bytes("wide".encode("utf-16"))
    (folder / "matter.txt").write_text(
        "*** START OF THE PROJECT GUTENBERG EBOOK X ***\n\n*** END OF THE PROJECT GUTENBERG EBOOK X ***\n"
    )
    (folder / "undated.txt").write_text(RUNNING)
    (folder / "nobody.txt").write_text(RUNNING)
    (folder / "cover.jpg").write_bytes(b"\xff\xd8")
    (folder / "old.mobi").write_bytes(b"BOOKMOBI")
    (folder / "greek.txt").write_text(RUNNING)
    (folder / ".hidden.txt").write_text(RUNNING)
    (folder / "away.txt").symlink_to(outside / "secret.txt")
    (folder / "linked").symlink_to(outside)
    chapter = page(f"<p>{CHAPTER}</p>")
    encryption = "<encryption><EncryptedData><EncryptionMethod Algorithm='aes'/></EncryptedData></encryption>"
    (folder / "drm.epub").write_bytes(epub({"a.xhtml": chapter}, **{"META-INF/encryption.xml": encryption}))
    (folder / "part.epub").write_bytes(epub({"a.xhtml": chapter, "b.xhtml": b"<p>\xff</p>"}))
    got = read(folder)
    assert [document.name for document in got.documents] == ["good.txt", "part.epub"]
    assert {(item.part, item.collection, item.name) for item in got.missing} == {
        ("absent.txt", "shelf", "absent.txt"),
        ("away.txt", "shelf", "away.txt"),
    }
    undescribed = "no row of books.csv or books.jsonl has the date of this book. Add a row with 'file' and 'published'."
    assert reasons(got) == {
        "bad.txt": (
            "the file contains invalid UTF-8 at byte 4. Save it as UTF-8, or enter latin-1 in the column 'encoding' of "
            "its row."
        ),
        "zero.txt": "the file contains a zero byte (after 1 characters), so it is not a text file",
        "wide.txt": "the file is in UTF-16. Save it as UTF-8.",
        "matter.txt": "the book has no text apart from front and back matter",
        "drm.epub": "the book is copy-protected (META-INF/encryption.xml). Use a copy without protection.",
        "part.epub!1 of 2 chapters (OPS/b.xhtml)": "the file contains invalid UTF-8 at byte 4",
        "old.mobi": "the file format is not one of .txt, .epub",
        "cover.jpg": "the file format is not one of .txt, .epub",
        "nobody.txt": undescribed,
        "undated.txt": undescribed,
        "greek.txt": undescribed,
        "away.txt": "the file is a link to a place outside the folder",
        "linked": "the folder is a link, and links to folders are not followed",
        "books.csv:11 (undated.txt)": "the column 'published' is empty. Enter the date of first publication.",
        "books.csv:12 (../outside/secret.txt)": (
            "the column 'file' must contain the path of a file below the folder of the metadata file"
        ),
        "books.csv:14 (greek.txt)": "the column 'encoding' must contain utf-8 or latin-1, not 'iso-8859-7'",
        "books.csv:15 (good.txt)": "this row is skipped, because an earlier row describes the same book: books.csv:2",
    }


def test_each_folder_may_have_metadata_and_broken_metadata_keeps_documents(tmp_path: Path) -> None:
    for name in ("a", "b"):
        metadata(tmp_path / name, f"book.txt,Book {name},,1900,,,,,")
        (tmp_path / name / "book.txt").write_text(RUNNING)
    (tmp_path / "books.jsonl").write_text('{"file": "a/book.txt", "published": 1800}\n')
    got = read(tmp_path)
    assert [(document.name, document.title) for document in got.documents] == [
        ("a/book.txt", "Book a"),
        ("b/book.txt", "Book b"),
    ]
    assert [item.reason for item in got.left_out] == [
        "this row is skipped, because an earlier row describes the same file: books.csv:2"
    ]
    (tmp_path / "b" / "books.csv").write_text("")
    broken = read(tmp_path)
    assert [document.name for document in broken.documents] == ["a/book.txt"]
    assert broken.missing[0].can_contain("shelf", "b/book.txt")


def test_missing_settings_are_reported(tmp_path: Path) -> None:
    assert "books.folder" in (BooksSettings().missing_setting or "")
    mirror = {"gutenberg": {"mirror": "http://mirror.example"}}
    assert "books.contact" in (BooksSettings.model_validate(mirror).missing_setting or "")
    assert BooksSettings.model_validate({**mirror, "contact": "ann@example.org"}).missing_setting is None
    assert BooksSettings(folder=tmp_path).missing_setting is None


def test_without_a_mirror_nothing_is_fetched(tmp_path: Path) -> None:
    metadata(tmp_path / "shelf", "lamp.txt,,,1871,,,,,")
    (tmp_path / "shelf" / "lamp.txt").write_text(RUNNING)
    got = collect(fetch_documents(BooksSettings(folder=tmp_path / "shelf"), tmp_path / "downloads"))
    assert [(document.collection, document.name, document.title) for document in got.documents] == [
        ("books", "lamp.txt", "lamp")
    ]
    assert not (tmp_path / "downloads").exists()


def test_with_broken_dates_nothing_is_fetched_and_books_stay(tmp_path: Path) -> None:
    metadata(tmp_path / "shelf", "lamp.txt,,,1871,,,,,")
    (tmp_path / "shelf" / "lamp.txt").write_text(RUNNING)
    settings = BooksSettings.model_validate(
        {
            "folder": tmp_path / "shelf",
            "dates": tmp_path / "absent.csv",
            "contact": "ann@example.org",
            "gutenberg": {"mirror": "http://127.0.0.1:9"},
        }
    )
    got = collect(fetch_documents(settings, tmp_path / "downloads"))
    assert len(got.documents) == 1
    assert [item.collection for item in got.missing] == ["gutenberg"]
    assert "no such file" in got.missing[0].reason


@pytest.mark.parametrize(
    ("prose", "years"),
    [
        ("London: Smith, Elder and Co., 1847", [1847]),
        ("between 1890 and 1893", [1890, 1893]),
        ("in 1872-73 and 1899–1901", [1872, 1873, 1899, 1901]),
        ("No. 11847, 1,847 copies at £1200, 1818.", [1818]),
        ("1876/77; 1850-49", [1876, 1877, 1850]),
        ("44 BC", []),
    ],
)
def test_years_in_prose(prose: str, years: list[int]) -> None:
    assert find_years(prose) == years


def test_rows_of_a_metadata_file(tmp_path: Path) -> None:
    path = tmp_path / "books.csv"
    path.write_text(
        "file,title,author,published,language,group,shelfmark\n"
        "a.txt,The Lamp,Ada Miller,1851,en,lamp,X1\n"
        "b.txt,,,1900-02,,,\n"
        "c.txt,No date,,,,,\n"
        "d.txt,Bad date,,last year,,,\n"
        "e.txt,Bad language,,1900,English,,\n"
        ",No file,,1900,,,\n"
        "a.txt,Again,,1852,,,\n"
        "too,few\n"
    )
    rows = read_metadata(path, "file")
    entries = [row for row in rows if isinstance(row, BookEntry)]
    left_out = [row for row in rows if isinstance(row, LeftOut)]
    assert [(entry.key, entry.title, entry.author, entry.language, entry.group) for entry in entries] == [
        ("a.txt", "The Lamp", "Ada Miller", "en", "lamp"),
        ("b.txt", None, None, None, None),
    ]
    assert entries[1].dating == Dating(date(1900, 2, 28), date(1900, 2, 1))
    assert [(item.part, item.reason.partition(";")[0]) for item in left_out] == [
        ("books.csv:9", "has 2 fields, but the header has 7"),
        ("books.csv:4 (c.txt)", "the column 'published' is empty. Enter the date of first publication."),
        (
            "books.csv:5 (d.txt)",
            f"the column 'published' cannot be read: 'last year' is not a readable date. {DATE_ADVICE}",
        ),
        ("books.csv:6 (e.txt)", "the column 'language' must contain an ISO 639 code such as en, not 'English'"),
        ("books.csv:7", "the column 'file' is empty"),
        ("books.csv:8 (a.txt)", "this row is skipped, because an earlier row describes the same book: books.csv:2"),
    ]
