"""Dates as coarse as a year, and metadata files."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from audit_pipeline.readers.dates import DATE_ADVICE, Dating
from audit_pipeline.sources.base import LeftOut
from audit_pipeline.sources.books.book_folder import BookEntry, find_years, read_metadata


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
    assert [(item.part, item.reason.split(";")[0]) for item in left_out] == [
        ("books.csv:9", "has 2 fields, but the header has 7"),
        ("books.csv:4 (c.txt)", "no date of first publication"),
        ("books.csv:5 (d.txt)", f"'published': 'last year' is not a readable date. {DATE_ADVICE}"),
        ("books.csv:6 (e.txt)", "'language' is not an ISO 639 code such as en: 'English'"),
        ("books.csv:7", "column 'file' is empty"),
        ("books.csv:8 (a.txt)", "described before, at books.csv:2, which is used"),
    ]
