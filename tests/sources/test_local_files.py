"""Documents in the user's folders and files."""

from __future__ import annotations

import errno
import json
import os
from datetime import date
from pathlib import Path

import pytest
from made_epubs import epub, item, package, page
from made_files import save_dataset, write_rows
from made_whole_files import docx, paragraph

from audit_pipeline.config.entries import Entries
from audit_pipeline.errors import SourceError
from audit_pipeline.pipeline.workspace_creation import create_workspace
from audit_pipeline.readers.dates import Dating
from audit_pipeline.readers.formats import ROW_SUFFIXES
from audit_pipeline.readers.whole_files.document import WHOLE_FILES, WholeDocument, read_document
from audit_pipeline.sources import local_files
from audit_pipeline.sources.base import FetchedDocuments
from audit_pipeline.sources.config import SourceSettings, list_file_stamps
from audit_pipeline.sources.local_files import LocalFilesSettings, fetch_local_files


def settings(path: Path | None, **changes: object) -> LocalFilesSettings:
    return LocalFilesSettings.model_validate({"path": path, **changes})


def reasons(fetched: FetchedDocuments) -> dict[str, str]:
    return {item.part: item.reason for item in fetched.left_out}


def test_a_missing_path_is_an_error_with_advice() -> None:
    with pytest.raises(SourceError, match=r"set local_files\.path in config/sources\.yaml"):
        fetch_local_files(settings(None))


def test_a_missing_folder_is_a_missing_part(tmp_path: Path) -> None:
    fetched = fetch_local_files(settings(tmp_path / "absent"))
    assert fetched.documents == ()
    assert "no such file or folder" in fetched.missing[0].reason
    assert fetched.missing[0].can_contain("local", "anything.txt")


def test_a_folder_with_files_of_every_kind(tmp_path: Path) -> None:
    folder, outside = tmp_path / "shelf", tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text("must not be read")
    (folder / "book.txt").write_bytes(b"\xef\xbb\xbfOne document,\r\nof two lines.\n")
    (folder / "deep" / "page.md").write_text("# A page\n")
    (folder / "rows.jsonl").write_text('{"text": "row one"}\n{"text": 5}\n{"text": "row three"}\n')
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "blank.txt").write_text(" \n")
    (folder / "cover.jpg").write_bytes(b"picture")
    (folder / ".hidden.txt").write_text("not looked at")
    (folder / ".git").mkdir()
    (folder / ".git" / "config.txt").write_text("not looked at")
    (folder / "away.txt").symlink_to(outside / "secret.txt")
    (folder / "away").symlink_to(outside)
    (folder / "alias.txt").symlink_to(folder / "book.txt")
    fetched = fetch_local_files(settings(folder, licence="CC0-1.0", language="de", collection="shelf"))
    assert [(document.name, document.title, document.text) for document in fetched.documents] == [
        ("alias.txt", "alias", "One document,\nof two lines.\n"),
        ("book.txt", "book", "One document,\nof two lines.\n"),
        ("deep/page.md", "page", "# A page\n"),
        ("rows.jsonl#0", "rows 1", "row one"),
        ("rows.jsonl#2", "rows 3", "row three"),
    ]
    assert {(d.collection, d.licence, d.language, d.published, d.group) for d in fetched.documents} == {
        ("shelf", "CC0-1.0", "de", None, None)
    }
    assert fetched.documents[1].url == (folder / "book.txt").as_uri()
    assert reasons(fetched) == {
        "away": "the folder is a link, and links to folders are not followed",
        "away.txt": "the file is a link to a place outside the folder",
        "blank.txt": "the text is empty",
        "rows.jsonl#1": "rows.jsonl:2: column 'text' is not a string but int",
        "cover.jpg": f"the file format is not one of {', '.join((*WHOLE_FILES, *ROW_SUFFIXES))}",
    }
    (missing,) = fetched.missing
    assert missing.part == "latin.txt"
    assert "invalid UTF-8 at byte 4" in missing.reason
    assert missing.can_contain("shelf", "latin.txt")
    assert not missing.can_contain("shelf", "latin.txt.md")


def test_irregular_files_are_reported_with_their_kind(tmp_path: Path) -> None:
    for name, target in {"self.txt": "self.txt", "there.txt": "back.txt", "back.txt": "there.txt"}.items():
        (tmp_path / name).symlink_to(target)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "absent.txt")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "folder.txt" / "around").symlink_to(tmp_path)
    (tmp_path / "folder.txt" / "inner.txt").write_text("An inner text.")
    os.mkfifo(tmp_path / "pipe.pdf")
    fetched = fetch_local_files(settings(tmp_path))
    assert [document.name for document in fetched.documents] == ["folder.txt/inner.txt"]
    circle = "a link that leads back to itself"
    assert reasons(fetched) == {
        **dict.fromkeys(("back.txt", "self.txt", "there.txt"), circle),
        "zero.jsonl": "a device",
        "folder.txt/around": "the folder is a link, and links to folders are not followed",
        "pipe.pdf": "a pipe",
    }
    (missing,) = fetched.missing
    assert (missing.part, "it is a broken link" in missing.reason) == ("gone.txt", True)
    assert reasons(fetch_local_files(settings(tmp_path / "pipe.pdf"))) == {"pipe.pdf": "a pipe"}
    assert circle in fetch_local_files(settings(tmp_path / "self.txt")).missing[0].reason


def test_an_unreadable_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open.txt").write_text("A text.")
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def scan_with_permission(path: str) -> object:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_with_permission)
    fetched = fetch_local_files(settings(tmp_path))
    assert [document.name for document in fetched.documents] == ["open.txt"]
    assert reasons(fetched) == {"closed": "the folder cannot be read (Permission denied)"}


def test_a_file_that_vanishes_before_it_is_read_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    (tmp_path / "b.txt").write_text("Another text.")

    def read_and_remove(path: Path) -> object:
        (tmp_path / "b.txt").unlink(missing_ok=True)
        return read_document(path)

    monkeypatch.setattr(local_files, "read_document", read_and_remove)
    fetched = fetch_local_files(settings(tmp_path))
    assert [document.name for document in fetched.documents] == ["a.txt"]
    assert [(part.part, "No such file" in part.reason) for part in fetched.missing] == [("b.txt", True)]


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.txt"
    file.write_text("A text.")
    parsed: list[Path] = []

    def read_and_count(path: Path) -> WholeDocument:
        parsed.append(path)
        return read_document(path)

    def fetch_text() -> str:
        return fetch_local_files(settings(tmp_path)).documents[0].text

    monkeypatch.setattr(local_files, "read_document", read_and_count)
    assert [fetch_text(), fetch_text()] == ["A text.", "A text."]
    assert parsed == [file]
    file.write_text("A longer text.")
    assert [fetch_text(), fetch_text()] == ["A longer text.", "A longer text."]
    assert parsed == [file, file]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nError: forged.txt", r"a\nError: forged.txt"),
        ("a\rforged.txt", r"a\rforged.txt"),
        ("a\x1b[31m.txt", r"a\x1b[31m.txt"),
        ("a\u202etxt.exe.txt", r"a\u202etxt.exe.txt"),
        ("a\u2028b.txt", r"a\u2028b.txt"),
        ("میخواهم\u200cها.txt", "میخواهم\u200cها.txt"),
    ],
)
def test_control_characters_in_names_are_escaped(tmp_path: Path, name: str, shown: str) -> None:
    (tmp_path / name).write_text("A text.")
    (tmp_path / f"{name}.jsonl").write_text('{"text": "A row."}\n{"no": 1}\n')
    fetched = fetch_local_files(settings(tmp_path))
    assert [document.name for document in fetched.documents] == [shown, f"{shown}.jsonl#0"]
    assert [document.title.isprintable() or "\u200c" in name for document in fetched.documents] == [True, True]
    assert reasons(fetched) == {f"{shown}.jsonl#1": f"{shown}.jsonl:2: no column 'text'"}


def test_a_name_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/bad\xff.txt")).write_text("A text.")
    fetched = fetch_local_files(settings(tmp_path))
    assert reasons(fetched) == {r"bad\udcff.txt": "the name of the file is not UTF-8. Rename the file."}
    assert [name for name, _, _ in list_file_stamps(tmp_path)] == [rf"{tmp_path.name}/bad\udcff.txt"]


def test_of_two_names_that_are_printed_alike_one_is_skipped(tmp_path: Path) -> None:
    for name in ("a\nb.txt", r"a\nb.txt"):
        (tmp_path / name).write_text(f"The text of {name!r}.")
    fetched = fetch_local_files(settings(tmp_path))
    assert len(fetched.documents) == 1
    assert "Rename one of the two files" in reasons(fetched)[r"a\nb.txt"]


def test_columns_dates_and_groups(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"body": "a", "day": "2021-05-04", "book": "B1", "name": "Chapter 1"},
        {"body": "b", "day": "2021-05-04T23:30:00+02:00", "book": 7, "name": None},
        {"body": "c", "day": None, "book": "B1", "name": " "},
        {"body": "d", "day": "c. 2021", "book": "B1", "name": "x"},
        {"body": "e", "day": 2021, "book": "B1", "name": "x"},
        {"body": "f", "day": "2021-05-04", "book": None, "name": "x"},
        {"body": "g", "day": "2021-05-04", "book": ["B1"], "name": "x"},
        {"body": "h", "day": "2021-05-04", "book": "\ud800", "name": "x"},
        {"other": "i"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"text_column": "body", "date_column": "day", "group_column": "book", "title_column": "name"}
    fetched = fetch_local_files(settings(path, url="https://example.invalid/shelf", **columns))
    assert {document.url for document in fetched.documents} == {"https://example.invalid/shelf"}
    assert [(d.name, d.title, d.text, d.earliest, d.published, d.group) for d in fetched.documents] == [
        ("rows.jsonl#0", "Chapter 1", "a", None, date(2021, 5, 4), "B1"),
        ("rows.jsonl#1", "rows 2", "b", None, date(2021, 5, 4), "7"),
        ("rows.jsonl#2", "rows 3", "c", None, None, "B1"),
        ("rows.jsonl#3", "x", "d", None, None, "B1"),
        ("rows.jsonl#4", "x", "e", date(2021, 1, 1), date(2021, 12, 31), "B1"),
    ]
    found = reasons(fetched)
    assert found["rows.jsonl!1 of 9 dates"] == (
        "these dates cannot be read, so their texts have no date (rows.jsonl:4: 'c. 2021' is not a readable date). "
        "Write dates as 2024-05-31, 2024-05 or 2024."
    )
    assert found["rows.jsonl#5"] == "rows.jsonl:6: the column 'book' is empty, so the row has no group"
    assert found["rows.jsonl#6"] == "rows.jsonl:7: column 'book' is not a string but list"
    assert "lone surrogate" in found["rows.jsonl#7"]
    assert found["rows.jsonl#8"] == "rows.jsonl:9: no column 'body'"
    assert len(found) == 5


def test_every_row_format_and_saved_data_sets_are_read(tmp_path: Path) -> None:
    rows = [{"text": "a text; with one", "label": "1"}, {"text": "another", "label": "0"}]
    for suffix in ROW_SUFFIXES:
        write_rows(tmp_path / f"rows{suffix}", rows)
    save_dataset(tmp_path / "inside" / "saved", rows)
    (tmp_path / "rows.csv").write_text("text;label\na text; with one;1\nanother;0\n")
    (tmp_path / "lines.txt.gz").write_bytes(b"")
    fetched = fetch_local_files(settings(tmp_path))
    by_file: dict[str, list[str]] = {}
    for document in fetched.documents:
        by_file.setdefault(document.name.split("#")[0], []).append(document.text)
    assert by_file.pop("rows.csv") == ["another"], "the first row has an additional field and is reported"
    names = [*(f"rows{suffix}" for suffix in ROW_SUFFIXES if suffix != ".csv"), "inside/saved"]
    assert by_file == {name: [row["text"] for row in rows] for name in names}
    assert reasons(fetched)["rows.csv#0"] == "rows.csv:2: has 3 fields, but the header has 2"
    assert reasons(fetched)["lines.txt.gz"].startswith("the file format is not one of ")
    whole = fetch_local_files(settings(tmp_path / "inside" / "saved"))
    assert [document.name for document in whole.documents] == ["saved#0", "saved#1"]


def test_a_file_without_the_column_is_missing_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("text,day\na,2018-07-06\n")
    (tmp_path / "other.csv").write_text("text,published\nb,2018-07-06\n")
    (tmp_path / "broken.parquet").write_bytes(b"broken")
    fetched = fetch_local_files(settings(tmp_path, date_column="day"))
    assert [document.text for document in fetched.documents] == ["a"]
    assert [item.part for item in fetched.missing] == ["broken.parquet", "other.csv"]
    assert "no column 'day'; the columns are: text, published" in fetched.missing[1].reason
    assert fetched.missing[1].can_contain("local", "other.csv#0")


def test_collections_have_distinct_names(tmp_path: Path) -> None:
    for name in ("old/a.txt", "old/deep/b.txt", "new/a.txt", "loose.txt", "alone/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"the text of {name}")
    fetched = fetch_local_files(
        settings(
            None,
            collections={
                "both": [str(tmp_path / "old"), str(tmp_path / "new"), str(tmp_path / "loose.txt")],
                "one": [str(tmp_path / "alone")],
            },
        )
    )
    assert {(one.collection, one.name): one.text for one in fetched.documents} == {
        ("both", "old/a.txt"): "the text of old/a.txt",
        ("both", "old/deep/b.txt"): "the text of old/deep/b.txt",
        ("both", "new/a.txt"): "the text of new/a.txt",
        ("both", "loose.txt"): "the text of loose.txt",
        ("one", "a.txt"): "the text of alone/a.txt",
    }
    assert not fetched.missing


def test_the_language_of_each_text_is_detected(tmp_path: Path) -> None:
    (tmp_path / "de.txt").write_text("Die Laternen wurden angezündet, bevor der Wagen den langen Hügel herunterkam.")
    (tmp_path / "en.txt").write_text("The lanterns were lit before the carriage came down the long hill.")
    fetched = fetch_local_files(settings(tmp_path, language="detect"))
    assert {one.name: one.language for one in fetched.documents} == {"de.txt": "de", "en.txt": "en"}


def test_titles_are_read_and_damaged_files_are_reported(tmp_path: Path) -> None:
    """A damaged file is missing, and a file without text is skipped."""
    (tmp_path / "page.html").write_text("<title>The lamp</title><p>It was lit.</p>")
    (tmp_path / "cut.pdf").write_bytes(b"%PDF")
    (tmp_path / "locked.docx").write_bytes(bytes.fromhex("D0CF11E0A1B11AE1"))
    fetched = fetch_local_files(settings(tmp_path))
    assert [(one.title, one.text) for one in fetched.documents] == [("The lamp", "It was lit.")]
    assert [one.part for one in fetched.missing] == ["cut.pdf"]
    assert [one.part for one in fetched.left_out] == ["locked.docx"]
    assert "locked with a password" in reasons(fetched)["locked.docx"]


def test_the_edition_date_is_used_only_on_request(tmp_path: Path) -> None:
    opf = package(item("a", "a.xhtml"), '<itemref idref="a"/>')
    dated = opf.replace("</metadata>", "<dc:date>2014</dc:date></metadata>")
    (tmp_path / "a.epub").write_bytes(epub({"a.xhtml": page("<p>It was lit.</p>")}, opf=dated))
    core = '<p xmlns:t="http://purl.org/dc/terms/"><t:created>2021-12-31T23:30:00-05:00</t:created></p>'
    (tmp_path / "b.docx").write_bytes(docx(paragraph("It was lit."), **{"docProps/core.xml": core}))
    (tmp_path / "c.txt").write_text("It was lit.")
    editions = {
        "a.epub": Dating(date(2014, 12, 31), date(2014, 1, 1)),
        "b.docx": Dating(date(2022, 1, 1)),
        "c.txt": None,
    }
    for edition_dates in (False, True):
        fetched = fetch_local_files(settings(tmp_path, edition_dates=edition_dates))
        assert {one.name: one.edition for one in fetched.documents} == editions
        published = {one.name: one.published for one in fetched.documents}
        expected = {name: edition and edition.published for name, edition in editions.items()}
        assert published == (expected if edition_dates else dict.fromkeys(editions))
    kinds = {one.name: one.date_kind for one in fetched.documents}
    assert kinds == dict.fromkeys(("a.epub", "b.docx"), "this edition, as the file gives it") | {"c.txt": "publication"}


def test_a_workspace_in_the_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    create_workspace(tmp_path / "audits")
    section = settings(tmp_path)
    before = SourceSettings(Entries(tmp_path, "section", {"local_files": section})).digest_for("local_files")
    (tmp_path / "audits" / "data" / "more.jsonl").write_text('{"text": "not a document"}\n')
    fetched = fetch_local_files(section)
    assert [one.name for one in fetched.documents] == ["a.txt"]
    assert reasons(fetched) == {"audits": "the folder is a workspace of Corpus Audit"}
    assert SourceSettings(Entries(tmp_path, "section", {"local_files": section})).digest_for("local_files") == before


def test_a_changed_file_of_a_collection_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a.txt").write_text("a text")
    section = settings(None, collections={"held_out": [tmp_path / "new"]})
    known = SourceSettings(Entries(tmp_path, "section", {"local_files": section}))
    before = known.digest_for("local_files")
    assert known.digest_for("local_files") == before
    (tmp_path / "new" / "b.txt").write_text("another")
    assert known.digest_for("local_files") != before
