"""Release notes: releases, their dates, and a fetch from a local package index."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from loopback_index import FakeIndex, make_archive

from audit_pipeline.sources import release_notes
from audit_pipeline.sources.base import LeftOut, collect
from audit_pipeline.sources.release_notes import (
    ReleaseNotesSettings,
    fetch,
    parse_django_releases,
    parse_pytest_releases,
    parse_release_date,
    parse_sqlalchemy_releases,
)


def django_page(version: str, date_line: str, body: str) -> str:
    title = f"Django {version} release notes"
    ruler = "=" * len(title)
    return f"{ruler}\n{title}\n{ruler}\n\n{date_line}\n\n{body}\n"


DJANGO = {
    "docs/releases/index.txt": "=====\nIndex\n=====\n\n*May 1, 2020*\n\nNot a release.\n",
    "docs/releases/1.0-porting-guide.txt": django_page("1.0", "*May 1, 2020*", "Not a release either."),
    "docs/releases/4.0.txt": django_page("4.0", "*December 7, 2021*", "Invented: see :doc:`/howto/move`."),
    "docs/releases/4.1.txt": django_page("4.1", "August 3, 2022", ".. _new:\n\nNews\n====\n\nPlain :ref:`new` date."),
    "docs/releases/4.2.txt": django_page("4.2", ".. note::\n\n    A word first.\n\n*April 3, 2023.*", "After a note."),
    "docs/releases/5.0.txt": django_page("5.0", "*Expected December 2023*", "Written on *May 1, 2020*."),
    "docs/releases/5.1.txt": django_page("5.1", "*Under development*", "Nothing yet."),
    "docs/releases/0.9.txt": django_page("0.9", "Welcome!", "No date at all."),
    "docs/howto/move.txt": "============\nMoving house\n============\n\nHow.\n",
    "docs/releases/latin.txt": b"caf\xe9",
    "django/notes.txt": "not documentation",
}

PYTEST_CHANGELOG = """\
=========
Changelog
=========

.. only:: not is_release

   To be included
   ^^^^^^^^^^^^^^

.. towncrier release notes start

pytest 9.0.0 (2025-11-05)
=========================

New features
------------

- `#1 <https://example.invalid/1>`_: An invented feature of :func:`pytest.demo`.


pytest 8.1.0 (YANKED)
=====================

Withdrawn.

2.6
===

- undated

1.0.0b9 (2009-07-31)
====================

* an old entry
"""

SQLALCHEMY_CHANGELOG = """\
=============
2.0 Changelog
=============

.. changelog_imports::

    .. include:: changelog_14.rst
        :start-line: 5


.. changelog::
    :version: 2.0.2
    :include_notes_from: unreleased_20

.. changelog::
    :version: 2.0.1
    :released: Friday, March 3, 2023

    .. change::
        :tags: bug
        :tickets: 5

        An invented fix of :func:`_orm.shelve`.

    .. change::
        :tags: usecase

        A second entry.

.. changelog::
    :version: 2.0.0b1
    :released: January 26, 2023
    :released: October 13, 2022

    .. change::
        :tags: first

        In the first beta.

.. changelog::
    :version: 1.9.9
    :released: some day

.. changelog::
    :version: 1.9.8
    :released: Sat May 05 2012
"""


def test_dates_in_every_spelling_of_the_projects() -> None:
    spellings = ("2023-03-05", "March 5, 2023", "Sunday, March 5, 2023", "Sun Mar 5 2023", " March 05, 2023 ")
    assert {parse_release_date(text) for text in spellings} == {date(2023, 3, 5)}
    assert [parse_release_date(text) for text in ("", "March 2023", "5 March", "February 30, 2023")] == [None] * 4


def test_django_pages() -> None:
    found = {
        name: list(parse_django_releases(name.removeprefix("docs/"), page))
        for name, page in DJANGO.items()
        if isinstance(page, str) and name.startswith("docs/releases/")
    }
    assert found["docs/releases/index.txt"] == found["docs/releases/1.0-porting-guide.txt"] == []
    releases = {release.version: release for each in found.values() for release in each}
    assert {version: release.published for version, release in releases.items()} == {
        "4.0": date(2021, 12, 7),
        "4.1": date(2022, 8, 3),
        "4.2": date(2023, 4, 3),
        "5.0": None,
        "5.1": None,
        "0.9": None,
    }
    assert releases["5.0"].problem == "the release is not published yet: Expected December 2023"
    assert releases["5.1"].problem == "the release is not published yet: Under development"
    assert releases["0.9"].problem == "the page contains no release date"
    assert "Invented" in releases["4.0"].markup
    for version, text in (("4.0", "December 7, 2021"), ("4.1", "August 3, 2022"), ("4.2", "April 3, 2023")):
        assert text not in releases[version].markup
        assert "release notes" not in releases[version].markup


def test_pytest_changelog() -> None:
    releases = list(parse_pytest_releases("changelog.rst", PYTEST_CHANGELOG))
    assert [(release.version, release.published, release.problem) for release in releases] == [
        ("9.0.0", date(2025, 11, 5), None),
        ("8.1.0", None, "the heading of the release has 'YANKED' instead of a date"),
        ("2.6", None, "the heading of the release has no date"),
        ("1.0.0b9", date(2009, 7, 31), None),
    ]
    assert "An invented feature" in releases[0].markup
    assert "Withdrawn" not in releases[0].markup
    assert "2025" not in releases[0].markup


def test_sqlalchemy_changelog() -> None:
    releases = list(parse_sqlalchemy_releases("changelog/changelog_20.rst", SQLALCHEMY_CHANGELOG))
    assert [(release.version, release.published, release.problem) for release in releases] == [
        ("2.0.2", None, "the release has no date, so it is probably not published yet"),
        ("2.0.1", date(2023, 3, 3), None),
        ("2.0.0b1", date(2022, 10, 13), None),
        ("1.9.9", None, "a date of the release cannot be read: some day"),
        ("1.9.8", date(2012, 5, 5), None),
    ]
    assert "A second entry." in releases[1].markup
    assert "first beta" not in releases[1].markup
    assert "2023" not in releases[1].markup


SQLALCHEMY = dict.fromkeys(
    ("doc/build/changelog/changelog_20.rst", "doc/build/changelog/migration_20.rst"), SQLALCHEMY_CHANGELOG
)
PROJECTS = {
    "django": {"django-4.2.tar.gz": make_archive("django-4.2", DJANGO)},
    "pytest": {"pytest-9.0.0.tar.gz": make_archive("pytest-9.0.0", {"doc/en/changelog.rst": PYTEST_CHANGELOG})},
    "sqlalchemy": {"sqlalchemy-2.0.1.tar.gz": make_archive("sqlalchemy-2.0.1", SQLALCHEMY)},
}


@pytest.fixture
def three_projects(fake_index: FakeIndex, monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    monkeypatch.setattr(release_notes, "read_configured_index", lambda: fake_index.index)
    fake_index.projects = dict(PROJECTS)
    return fake_index


def test_fetch_of_three_projects(three_projects: FakeIndex, tmp_path: Path) -> None:
    fetched = collect(fetch(ReleaseNotesSettings(projects=("django", "pytest", "sqlalchemy")), tmp_path))
    assert {f"{document.collection} {document.name}": document.text for document in fetched.documents} == {
        "django 4.0": "Invented: see Moving house.",
        "django 4.1": "News\n\nPlain News date.",
        "django 4.2": "A word first.\n\nAfter a note.",
        "pytest 9.0.0": "New features\n\n#1: An invented feature of pytest.demo().",
        "pytest 1.0.0b9": "an old entry",
        "sqlalchemy 2.0.1": "An invented fix of shelve().\n\nA second entry.",
        "sqlalchemy 2.0.0b1": "In the first beta.",
    }
    first = fetched.documents[0]
    assert (first.title, first.published, first.licence, first.language) == (
        "Django 4.0",
        date(2021, 12, 7),
        "BSD-3-Clause",
        "en",
    )
    assert first.url.endswith("/releases/4.0/")
    assert [(item.part, item.reason) for item in fetched.missing] == [
        ("django/docs/releases/latin.txt", "the file contains invalid UTF-8 at byte 4")
    ]
    assert LeftOut("Django 5.1", "the release is not published yet: Under development") in fetched.left_out
    assert LeftOut("SQLAlchemy 1.9.8", "the release notes have no text") in fetched.left_out
    assert len(fetched.left_out) == 3 + 2 + 3


def test_a_missing_project_does_not_affect_the_others(three_projects: FakeIndex, tmp_path: Path) -> None:
    del three_projects.projects["pytest"]
    fetched = collect(fetch(ReleaseNotesSettings(projects=("pytest", "sqlalchemy")), tmp_path))
    assert {document.collection for document in fetched.documents} == {"sqlalchemy"}
    (missing,) = fetched.missing
    assert (missing.part, missing.reason) == ("pytest", "pytest: the package index has no project with this name")
    assert missing.can_contain("pytest", "9.0.0")
    assert not missing.can_contain("sqlalchemy", "2.0.1")


def test_broken_archives_and_archives_without_notes_are_missing(three_projects: FakeIndex, tmp_path: Path) -> None:
    three_projects.projects["django"] = {"django-5.0.tar.gz": b"not an archive"}
    three_projects.projects["pytest"] = {"pytest-9.1.tar.gz": make_archive("pytest-9.1", {"README": "nothing"})}
    fetched = collect(fetch(ReleaseNotesSettings(projects=("django", "pytest")), tmp_path))
    assert fetched.documents == ()
    assert "archive cannot be read" in fetched.missing[0].reason
    assert fetched.missing[1].reason == "pytest-9.1.tar.gz contains no release with a date"


def test_an_unreachable_index_uses_cached_archives_and_reports_it(three_projects: FakeIndex, tmp_path: Path) -> None:
    before = collect(fetch(ReleaseNotesSettings(projects=("django",)), tmp_path))
    three_projects.stop()
    after = collect(fetch(ReleaseNotesSettings(projects=("django", "pytest")), tmp_path))
    assert after.documents == before.documents
    faults = {item.part: item for item in after.missing}
    assert faults["django"].reason.startswith("the package index could not be searched for versions newer than 4.2")
    assert not faults["django"].can_contain("django", "4.0")
    assert faults["pytest"].can_contain("pytest", "9.0.0")
