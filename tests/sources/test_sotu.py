"""Addresses in the package sotu."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from audit_pipeline.sources.base import LeftOut, SourceSection, collect
from audit_pipeline.sources.packaged_texts import SOTU_LICENCE, fetch_addresses, read_addresses

ROW = {
    **{"fileid": "1901-Doe-1", "year": 1901, "date": "1901-12-03", "president": "Doe", "sotu_type": "spoken"},
    **{"is_sotu": True, "source_url": "https://example.invalid/1901-Doe-1"},
}


def test_addresses_without_a_date_are_skipped() -> None:
    rows = [
        ROW,
        {**ROW, "fileid": "1901-Doe-2", "sotu_type": "written", "is_sotu": False},
        {**ROW, "fileid": "1902-Doe-1", "date": "nan"},
    ]
    fetched = collect(read_addresses(rows, "The address {}.".format))
    first, second = fetched.documents
    assert (first.collection, first.name, first.title, first.published, first.licence) == (
        "spoken",
        "1901-Doe-1",
        "State of the Union, 1901, Doe",
        date(1901, 12, 3),
        SOTU_LICENCE,
    )
    assert (first.text, second.collection) == ("The address 1901-Doe-1.", "written")
    assert second.title == "Message beside the State of the Union, 1901, Doe"
    assert first.group == second.group == "sotu:1901-Doe"
    assert fetched.left_out == (LeftOut("1902-Doe-1", "its date cannot be read: 'nan'"),)


def test_the_installed_package_has_all_addresses(tmp_path: Path) -> None:
    fetched = collect(fetch_addresses(SourceSection(), tmp_path))
    assert fetched.missing == fetched.left_out == ()
    assert len(fetched.documents) >= 249
    assert len({(document.collection, document.name) for document in fetched.documents}) == len(fetched.documents)
    assert min(document.published for document in fetched.documents if document.published) == date(1790, 1, 8)
    assert all(document.published and document.text.strip() and document.url for document in fetched.documents)
    kennedy = next(document for document in fetched.documents if document.name == "1963-Kennedy-1")
    assert kennedy.title == "State of the Union, 1963, Kennedy"
