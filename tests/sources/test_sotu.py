"""The addresses of the installed package, and an installation that lost some."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

from audit_pipeline.sources.base import LeftOut, SourceSection, collect
from audit_pipeline.sources.sotu import LICENCE, fetch, harvest_addresses

TEXTS = {
    "1901-Doe-1": "Fellow citizens.",
    "1901-Doe-2": "In short.",
    "1902-Doe-1": "Undated.",
    "1903-Roe-1": "Changed.",
}


def row(fileid: str, day: str, text: str, *, is_sotu: bool = True, medium: str = "spoken") -> dict[str, object]:
    year, president, _ = fileid.split("-")
    return {
        "fileid": fileid,
        "year": int(year),
        "date": day,
        "president": president,
        "sotu_type": medium,
        "is_sotu": is_sotu,
        "source_url": f"https://example.invalid/{fileid}",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def text_of(name: str) -> str:
    if name not in TEXTS:
        raise FileNotFoundError(f"{name} is gone")
    return TEXTS[name]


def test_addresses_with_lost_and_changed_ones_named() -> None:
    rows = [
        row("1901-Doe-1", "1901-12-03", "Fellow citizens."),
        row("1901-Doe-2", "1901-12-03", "In short.", is_sotu=False, medium="written"),
        row("1902-Doe-1", "nan", "Undated."),
        row("1903-Roe-1", "1903-12-07", "As it was described."),
        row("1904-Roe-1", "1904-12-06", "Gone."),
    ]
    harvest = collect(harvest_addresses(rows, text_of))
    first, second = harvest.documents
    assert (first.collection, first.name, first.title, first.published, first.licence) == (
        "spoken",
        "1901-Doe-1",
        "State of the Union, 1901, Doe",
        date(1901, 12, 3),
        LICENCE,
    )
    assert (second.collection, second.title) == ("written", "Message beside the State of the Union, 1901, Doe")
    assert first.group == second.group == "sotu:1901-Doe"
    assert harvest.left_out == (LeftOut("1902-Doe-1", "no date but 'nan'"),)
    assert [item.part for item in harvest.missing] == ["1903-Roe-1", "1904-Roe-1"]
    assert harvest.missing[1].held("spoken", "1904-Roe-1")
    assert not harvest.missing[1].held("spoken", "1904-Roe-10")


def test_the_installed_package_is_whole(tmp_path: Path) -> None:
    harvest = collect(fetch(SourceSection(), tmp_path))
    assert harvest.missing == harvest.left_out == ()
    assert len(harvest.documents) >= 249
    assert len({(document.collection, document.name) for document in harvest.documents}) == len(harvest.documents)
    assert min(document.published for document in harvest.documents if document.published) == date(1790, 1, 8)
    assert all(document.published and document.text.strip() and document.url for document in harvest.documents)
    kennedy = next(document for document in harvest.documents if document.name == "1963-Kennedy-1")
    assert kennedy.title == "State of the Union, 1963, Kennedy"
