"""Release notes of Python projects, from their source distributions: one document per release.

Releases that a project makes on one day form one group: they share text, so they are not independent.

The heading and the line with the date are not part of a document's text: an audited window must not carry its own
publication date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from audit_pipeline.config.validation import Distinct
from audit_pipeline.errors import SourceError
from audit_pipeline.readers.archives import Archive, read_members
from audit_pipeline.readers.pip_settings import read_configured_index
from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, MissingPart, Source, SourceSection, collect

NAME = "release_notes"

ProjectName = Literal["django", "pytest", "sqlalchemy"]


class ReleaseNotesSettings(SourceSection):
    """The projects whose release notes are taken."""

    projects: Annotated[tuple[ProjectName, ...], Distinct] = Field(
        default=("django", "pytest", "sqlalchemy"), description="the projects whose release notes are taken"
    )


@dataclass(frozen=True)
class Release:
    """One release as its project's notes have it: ``published`` None and a ``problem`` where it cannot be used."""

    version: str
    page: str
    published: date | None = None
    markup: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class Project:
    """Where a project keeps its notes, and under which terms.

    ``documentation`` is the folder whose pages the notes refer to; ``page`` the address of a page of notes below it.
    """

    collection: str
    title: str
    distribution: str
    licence: str
    documentation: str
    suffix: str
    page: str
    is_notes: Callable[[str], bool]
    releases: Callable[[str, str], Iterator[Release]]


def fetch(settings: ReleaseNotesSettings, downloads: Path) -> Iterator[FetchedItem]:
    """Yield the release notes of every project in ``settings``, from the package index that pip uses.

    A project that cannot be fetched is a missing part.
    """
    # Here and not above: the client of the package index brings parsers of HTML with it.
    from audit_pipeline.readers.package_downloads import fetch_sdist  # noqa: PLC0415

    index = read_configured_index()
    for name in settings.projects:
        project = PROJECTS[name]
        try:
            archive = fetch_sdist(project.distribution, index, downloads)
            fetched = collect(read_archive_releases(project, archive))
        except SourceError as error:
            yield MissingPart(name, str(error), name)
            continue
        if fetched.documents:
            yield from fetched
        else:
            yield MissingPart(name, f"{archive.path.name} holds no dated release", name)


def read_archive_releases(project: Project, archive: Archive) -> Iterator[FetchedItem]:
    """Yield the release notes in one source distribution; raises SourceError where it cannot be read."""
    files = read_members(
        archive.path, lambda name: name.startswith(project.documentation) and name.endswith(project.suffix)
    )
    if archive.fault:
        yield MissingPart(project.collection, archive.fault)
    pages: dict[str, str] = {}
    for name in sorted(files):
        try:
            pages[name] = files[name].decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            yield MissingPart(f"{project.collection}/{name}", f"invalid UTF-8 at byte {error.start}")
    # Here and not above: definitions load without a parser.
    from audit_pipeline.readers.rst_text import rst_to_text  # noqa: PLC0415

    titles = _collect_titles(pages, project)
    for name in filter(project.is_notes, pages):
        for release in project.releases(name.removeprefix(project.documentation), pages[name]):
            text = rst_to_text(release.markup, titles) if release.problem is None else ""
            problem = release.problem or ("no text" if not text else None)
            if problem:
                yield LeftOut(f"{project.title} {release.version}", problem)
            else:
                yield Document(
                    collection=project.collection,
                    name=release.version,
                    title=f"{project.title} {release.version}",
                    text=text,
                    published=release.published,
                    date_kind="release",
                    language="en",
                    licence=project.licence,
                    url=project.page.format(page=release.page),
                    # Releases of one day are one security fix in several versions, and share their paragraphs.
                    group=f"{NAME}:{project.collection}:{release.published}",
                )


def _collect_titles(pages: Mapping[str, str], project: Project) -> dict[str, str]:
    """Return what references between the project's pages show: label -> section title, /page -> page title."""
    from audit_pipeline.readers.rst_text import find_section_titles  # noqa: PLC0415

    titles: dict[str, str] = {}
    for name, markup in pages.items():
        found = find_section_titles(markup)
        page_title = found.pop("", None)
        titles.update(found)
        if page_title:
            titles["/" + name.removeprefix(project.documentation).removesuffix(project.suffix)] = page_title
    return titles


_DJANGO_VERSION = re.compile(r"\d+(?:\.\d+)+")
# Under the title, or after a note that precedes it; older notes print the date without the italics.
_DJANGO_DATE = re.compile(r"^\*?([A-Z][a-z]+ \d{1,2}, \d{4})\.?\*?$", re.MULTILINE)
_DJANGO_PENDING = re.compile(r"^\*(?:Expected|Under development|UNDER DEVELOPMENT).*\*$", re.MULTILINE | re.IGNORECASE)
_DJANGO_TITLE = re.compile(r"\A\s*=+\n.*\n=+\n|\A\s*\S.*\n=+\n")
_DJANGO_HEAD_LINES = 40


def django_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the release on a page of Django's notes; pages that are no release's (an index, a guide) yield nothing."""
    version = PurePosixPath(page).stem
    if not _DJANGO_VERSION.fullmatch(version):
        return
    address = PurePosixPath(page).with_suffix("").as_posix()
    body = _DJANGO_TITLE.sub("", markup, count=1)
    head = "\n".join(body.splitlines()[:_DJANGO_HEAD_LINES])
    pending, dated = _DJANGO_PENDING.search(head), _DJANGO_DATE.search(head)
    published = parse_release_date(dated.group(1)) if dated else None
    if pending and (dated is None or pending.start() < dated.start()):
        yield Release(version, address, problem=f"not released: {pending.group().strip('*')}")
    elif dated is None or published is None:
        yield Release(version, address, problem="no date on its page")
    else:
        yield Release(version, address, published, body[: dated.start()] + body[dated.end() :])


_PYTEST_HEADING = re.compile(r"^(?:pytest )?(\d+\.\d+[\w.]*)(?: \(([^)\n]*)\))?\n=+$", re.MULTILINE | re.IGNORECASE)


def pytest_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the releases in pytest's changelog: one under each heading such as ``pytest 9.1.0 (2026-06-13)``."""
    address = PurePosixPath(page).with_suffix("").as_posix()
    headings = list(_PYTEST_HEADING.finditer(markup))
    ends = [heading.start() for heading in headings[1:]] + [len(markup)]
    for heading, end in zip(headings, ends, strict=True):
        version, note = heading.group(1), heading.group(2)
        published = parse_release_date(note) if note else None
        if published is not None:
            yield Release(version, address, published, markup[heading.end() : end])
        else:
            yield Release(version, address, problem=f"no date in its heading but: {note}" if note else "no date")


_CHANGELOG = re.compile(r"^\.\. changelog::[ \t]*\n((?:(?:[ \t]+.*)?\n)*)", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]+:version:[ \t]*(\S+)", re.MULTILINE)
_RELEASED = re.compile(r"^[ \t]+:released:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_FIRST_ENTRY = re.compile(r"^[ \t]+\.\. ", re.MULTILINE)


def sqlalchemy_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the releases in one of SQLAlchemy's changelogs: one a ``.. changelog::`` with a version.

    A pre-release carries its own date and that of the final release: the earliest is when its text came out.
    """
    address = PurePosixPath(page).with_suffix("").as_posix()
    for block in _CHANGELOG.finditer(markup + "\n"):
        content = block.group(1)
        first_entry = _FIRST_ENTRY.search(content)
        options = content[: first_entry.start()] if first_entry else content
        version = _VERSION.search(options)
        if version is None:
            continue
        noted = [note for note in _RELEASED.findall(options) if note]
        dates = [parse_release_date(note) for note in noted]
        known = [day for day in dates if day is not None]
        if not noted:
            yield Release(version.group(1), address, problem="not released: no date")
        elif len(known) < len(dates):
            yield Release(version.group(1), address, problem=f"a date that cannot be read: {', '.join(noted)}")
        else:
            body = content[first_entry.start() :] if first_entry else ""
            yield Release(version.group(1), address, min(known), body)


_DATE_FORMATS = ("%Y-%m-%d", "%B %d, %Y", "%A, %B %d, %Y", "%a %b %d %Y")


def parse_release_date(text: str) -> date | None:
    """Return a date in one of the spellings that the projects use; None for anything else."""
    for spelling in _DATE_FORMATS:
        try:
            return datetime.strptime(text.strip(), spelling).date()
        except ValueError:
            continue
    return None


PROJECTS: Mapping[str, Project] = {
    project.collection: project
    for project in (
        Project(
            collection="django",
            title="Django",
            distribution="Django",
            licence="BSD-3-Clause",
            documentation="docs/",
            suffix=".txt",
            page="https://docs.djangoproject.com/en/stable/{page}/",
            is_notes=lambda name: PurePosixPath(name).parent.as_posix() == "docs/releases",
            releases=django_releases,
        ),
        Project(
            collection="pytest",
            title="pytest",
            distribution="pytest",
            licence="MIT",
            documentation="doc/en/",
            suffix=".rst",
            page="https://docs.pytest.org/en/stable/{page}.html",
            is_notes=lambda name: name == "doc/en/changelog.rst",
            releases=pytest_releases,
        ),
        Project(
            collection="sqlalchemy",
            title="SQLAlchemy",
            distribution="SQLAlchemy",
            licence="MIT",
            documentation="doc/build/",
            suffix=".rst",
            page="https://docs.sqlalchemy.org/en/latest/{page}.html",
            is_notes=lambda name: bool(re.fullmatch(r"doc/build/changelog/changelog_\d+\.rst", name)),
            releases=sqlalchemy_releases,
        ),
    )
}


SOURCE = Source(
    NAME,
    "Release notes of Python projects, from their newest source distributions; one document per release.",
    "; ".join(f"{project.title}: {project.licence}" for project in PROJECTS.values()),
    ReleaseNotesSettings,
    fetch,
)
