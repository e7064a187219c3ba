"""Source of release notes of Python projects, from their source distributions: one document per release.

Releases of a project on one day form a group, because they share text and so are not independent.

The heading and the line with the date are not part of the text, because an audited window must not contain its
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
from audit_pipeline.readers.distributions import Archive, read_configured_index, read_members
from audit_pipeline.readers.file_bytes import describe_invalid_bytes
from audit_pipeline.sources import base

NAME = "release_notes"

ProjectName = Literal["django", "pytest", "sqlalchemy"]


class ReleaseNotesSettings(base.SourceSection):
    """The settings of the source: the projects to read."""

    projects: Annotated[tuple[ProjectName, ...], Distinct] = Field(
        default=("django", "pytest", "sqlalchemy"), description="projects whose release notes are fetched"
    )


@dataclass(frozen=True)
class Release:
    """A release in the notes of a project.

    Attributes:
        version: The version.
        page: The path of its page in the documentation, without the suffix.
        published: The date of the release, or None if the release cannot be used.
        markup: The notes as reStructuredText.
        problem: The reason why the release cannot be used, or None.
    """

    version: str
    page: str
    published: date | None = None
    markup: str = ""
    problem: str | None = None


@dataclass(frozen=True)
class Project:
    """The location and the licence of a project's release notes.

    Attributes:
        collection: The collection of its documents.
        title: The name of the project.
        distribution: The package on the package index.
        licence: The licence.
        documentation: The folder of the documentation in the source distribution.
        suffix: The suffix of pages.
        page: The web address of a page. ``{page}`` stands for the path of the page.
        is_notes: Returns True for the path of a file with release notes in the source distribution.
        parse_releases: Yields the releases on a page. Its arguments are the page's path in the documentation and its
            markup.
    """

    collection: str
    title: str
    distribution: str
    licence: str
    documentation: str
    suffix: str
    page: str
    is_notes: Callable[[str], bool]
    parse_releases: Callable[[str, str], Iterator[Release]]


def fetch(settings: ReleaseNotesSettings, downloads: Path) -> Iterator[base.FetchedItem]:
    """Yield the release notes of every project, from the package index that pip uses.

    A project that cannot be fetched is a missing part.
    """
    # The client of the package index imports parsers of HTML, which is slow.
    from audit_pipeline.readers.package_downloads import fetch_sdist  # noqa: PLC0415

    index = read_configured_index()
    for name in settings.projects:
        project = PROJECTS[name]
        try:
            archive = fetch_sdist(project.distribution, index, downloads)
            fetched = base.collect(read_archive_releases(project, archive))
        except SourceError as error:
            yield base.MissingPart(name, str(error), name)
            continue
        if fetched.documents:
            yield from fetched
        else:
            yield base.MissingPart(name, f"{archive.path.name} contains no release with a date", name)


def read_archive_releases(project: Project, archive: Archive) -> Iterator[base.FetchedItem]:
    """Yield the release notes in a source distribution.

    Raises:
        SourceError: If the source distribution cannot be read.
    """
    files = read_members(
        archive.path, lambda name: name.startswith(project.documentation) and name.endswith(project.suffix)
    )
    if archive.fault:
        yield base.MissingPart(project.collection, archive.fault)
    pages: dict[str, str] = {}
    for name in sorted(files):
        try:
            pages[name] = files[name].decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            yield base.MissingPart(f"{project.collection}/{name}", f"the file contains {describe_invalid_bytes(error)}")
    titles = _collect_titles(pages, project)
    for name in filter(project.is_notes, pages):
        for release in project.parse_releases(name.removeprefix(project.documentation), pages[name]):
            yield _build_item(project, release, titles)


def _build_item(project: Project, release: Release, titles: Mapping[str, str]) -> base.Document | base.LeftOut:
    # The parser is imported here, so that the declaration of the source loads quickly.
    from audit_pipeline.readers.rst_text import convert_rst_to_text  # noqa: PLC0415

    title = f"{project.title} {release.version}"
    if release.problem is not None:
        return base.LeftOut(title, release.problem)
    text = convert_rst_to_text(release.markup, titles)
    if not text:
        return base.LeftOut(title, "the release notes have no text")
    return base.Document(
        collection=project.collection,
        name=release.version,
        title=title,
        text=text,
        published=release.published,
        date_kind="release",
        language="en",
        licence=project.licence,
        url=project.page.format(page=release.page),
        # Releases on one day are often one security fix in several versions with the same paragraphs.
        group=f"{NAME}:{project.collection}:{release.published}",
    )


def _collect_titles(pages: Mapping[str, str], project: Project) -> dict[str, str]:
    """Return the titles to show for cross-references, by the label of a section or the path of a page.

    The path of a page is relative to the documentation, such as /releases/5.0.
    """
    from audit_pipeline.readers.rst_text import find_section_titles  # noqa: PLC0415

    titles: dict[str, str] = {}
    for name, markup in pages.items():
        section_titles = find_section_titles(markup)
        page_title = section_titles.pop("", None)
        titles.update(section_titles)
        if page_title:
            titles["/" + name.removeprefix(project.documentation).removesuffix(project.suffix)] = page_title
    return titles


_DJANGO_VERSION = re.compile(r"\d+(?:\.\d+)+")
# The date stands under the title, sometimes after a note. Older notes do not print it in italics.
_DJANGO_DATE = re.compile(r"^\*?([A-Z][a-z]+ \d{1,2}, \d{4})\.?\*?$", re.MULTILINE)
_DJANGO_PENDING = re.compile(r"^\*(?:Expected|Under development|UNDER DEVELOPMENT).*\*$", re.MULTILINE | re.IGNORECASE)
_DJANGO_TITLE = re.compile(r"\A\s*=+\n.*\n=+\n|\A\s*\S.*\n=+\n")
_DJANGO_HEAD_LINES = 40


def parse_django_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the release on a page of Django's notes. Other pages, such as an index, yield nothing."""
    version = PurePosixPath(page).stem
    if not _DJANGO_VERSION.fullmatch(version):
        return
    address = PurePosixPath(page).with_suffix("").as_posix()
    body = _DJANGO_TITLE.sub("", markup, count=1)
    head = "\n".join(body.splitlines()[:_DJANGO_HEAD_LINES])
    pending = _DJANGO_PENDING.search(head)
    dated = _DJANGO_DATE.search(head)
    published = parse_release_date(dated.group(1)) if dated else None
    if pending and (dated is None or pending.start() < dated.start()):
        yield Release(version, address, problem=f"the release is not published yet: {pending.group().strip('*')}")
    elif dated is None or published is None:
        yield Release(version, address, problem="the page contains no release date")
    else:
        yield Release(version, address, published, body[: dated.start()] + body[dated.end() :])


_PYTEST_HEADING = re.compile(r"^(?:pytest )?(\d+\.\d+[\w.]*)(?: \(([^)\n]*)\))?\n=+$", re.MULTILINE | re.IGNORECASE)


def parse_pytest_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the releases in pytest's changelog: one under each heading such as ``pytest 9.1.0 (2026-06-13)``."""
    address = PurePosixPath(page).with_suffix("").as_posix()
    headings = list(_PYTEST_HEADING.finditer(markup))
    ends = [heading.start() for heading in headings[1:]] + [len(markup)]
    for heading, end in zip(headings, ends, strict=True):
        version = heading.group(1)
        note = heading.group(2)
        if not note:
            yield Release(version, address, problem="the heading of the release has no date")
            continue
        published = parse_release_date(note)
        if published is not None:
            yield Release(version, address, published, markup[heading.end() : end])
        else:
            yield Release(version, address, problem=f"the heading of the release has '{note}' instead of a date")


_CHANGELOG = re.compile(r"^\.\. changelog::[ \t]*\n((?:(?:[ \t]+.*)?\n)*)", re.MULTILINE)
_VERSION = re.compile(r"^[ \t]+:version:[ \t]*(\S+)", re.MULTILINE)
_RELEASED = re.compile(r"^[ \t]+:released:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_FIRST_ENTRY = re.compile(r"^[ \t]+\.\. ", re.MULTILINE)


def parse_sqlalchemy_releases(page: str, markup: str) -> Iterator[Release]:
    """Yield the releases in a changelog of SQLAlchemy: one per ``.. changelog::`` with a version.

    The notes of a pre-release have two dates: its own and that of the final release. The earlier date is used.
    """
    address = PurePosixPath(page).with_suffix("").as_posix()
    for block in _CHANGELOG.finditer(markup + "\n"):
        content = block.group(1)
        first_entry = _FIRST_ENTRY.search(content)
        body_start = first_entry.start() if first_entry else len(content)
        options = content[:body_start]
        version = _VERSION.search(options)
        if version is None:
            continue
        notes = list(filter(None, _RELEASED.findall(options)))
        days = [day for day in map(parse_release_date, notes) if day is not None]
        if not notes:
            yield Release(
                version.group(1), address, problem="the release has no date, so it is probably not published yet"
            )
        elif len(days) < len(notes):
            yield Release(
                version.group(1), address, problem=f"a date of the release cannot be read: {', '.join(notes)}"
            )
        else:
            yield Release(version.group(1), address, min(days), content[body_start:])


_DATE_FORMATS = ("%Y-%m-%d", "%B %d, %Y", "%A, %B %d, %Y", "%a %b %d %Y")


def parse_release_date(text: str) -> date | None:
    """Parse a date in one of the projects' formats. Return None for other formats."""
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
            parse_releases=parse_django_releases,
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
            parse_releases=parse_pytest_releases,
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
            parse_releases=parse_sqlalchemy_releases,
        ),
    )
}


SOURCE = base.Source(
    NAME,
    "Release notes of Python projects, from their newest source distributions; one document per release.",
    "; ".join(f"{project.title}: {project.licence}" for project in PROJECTS.values()),
    ReleaseNotesSettings,
    fetch,
)
