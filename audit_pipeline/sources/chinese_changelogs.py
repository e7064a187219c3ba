"""Chinese changelogs of the TDesign packages, from the registry that npm is configured with: one document a release.

What belongs here: where the packages keep their changelogs, how those write a release's version and date, and what is
left of their Markdown. What does not: fetching archives (npm.py).

A changelog begins anew with each major version, so the newest archive of each is read; a release that stands in
several is taken from the newest. Releases of one package that came out on one day, and the pre-releases of a version
with the version itself, form one group: they share text, so they are not independent.

The heading with the date is not part of a document's text: an audited window must not carry its own publication date.
Neither are links, numbers of pull requests and authors' names, nor headings without a Chinese character: they are of
the template, and their spelling ("BREAKING CHANGES", "🚨 Breaking Changes") tells the year without any model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.pypi import Archive, read_members
from audit_pipeline.sources.base import Document, Harvest, LeftOut, Missing
from audit_pipeline.sources.chinese_changelogs_settings import ChineseChangelogsSettings
from audit_pipeline.sources.npm import Registry, configured_registry, fetch_each_major

NAME = "chinese_changelogs"
LICENCE = "MIT"
CHANGELOG = "CHANGELOG.md"


@dataclass(frozen=True)
class Package:
    """A package by its name in the registry, how people call it, and the page that shows its changelog."""

    name: str
    title: str
    page: str


@dataclass(frozen=True)
class Release:
    """One release as a changelog has it: ``published`` None and a ``problem`` where it cannot be used."""

    version: str
    published: date | None
    text: str
    problem: str | None = None


def harvest(settings: ChineseChangelogsSettings, downloads: Path) -> Harvest:
    """The changelogs of the packages in ``settings``; raises SourceError where no registry is configured."""
    return harvest_from(configured_registry(), settings.packages, downloads)


def harvest_from(registry: Registry, packages: Sequence[str], downloads: Path) -> Harvest:
    """The changelogs of ``packages``; one that cannot be had is named in ``missing``."""
    harvests = [_package_harvest(PACKAGES[name], registry, downloads) for name in packages]
    return Harvest(
        documents=tuple(document for part in harvests for document in part.documents),
        missing=tuple(missing for part in harvests for missing in part.missing),
        left_out=tuple(left_out for part in harvests for left_out in part.left_out),
    )


def _package_harvest(package: Package, registry: Registry, downloads: Path) -> Harvest:
    try:
        archives = fetch_each_major(package.name, registry, downloads)
    except SourceError as error:
        return Harvest((), (Missing(package.name, str(error), package.name),))
    return harvest_archives(package, archives)


def harvest_archives(package: Package, archives: Sequence[Archive]) -> Harvest:
    """The releases in the changelogs of ``archives``, the newest archive first."""
    releases: list[Release] = []
    missing: list[Missing] = []
    for archive in archives:
        seen = {release.version for release in releases}
        missing.extend([Missing(package.name, archive.fault, package.name)] if archive.fault else [])
        try:
            found = in_order(list(releases_in(_changelog(archive))))
        except SourceError as error:
            missing.append(Missing(f"{package.name} {archive.version}", str(error), package.name))
            continue
        releases.extend(release for release in found if release.version not in seen)
        if not any(release.published for release in found):
            reason = f"{CHANGELOG} holds no dated release"
            missing.append(Missing(f"{package.name} {archive.version}", reason, package.name))
    usable = [release for release in releases if release.problem is None]
    groups = groups_of(usable)
    return Harvest(
        documents=tuple(_document(package, release, group) for release, group in zip(usable, groups, strict=True)),
        missing=tuple(missing),
        left_out=tuple(
            LeftOut(f"{package.title} {release.version}", release.problem) for release in releases if release.problem
        ),
    )


def _changelog(archive: Archive) -> str:
    """The changelog in an archive; raises SourceError where there is none that can be read."""
    members = read_members(archive.path, lambda name: name == CHANGELOG)
    for _, reason in members.refused:
        raise SourceError(f"{CHANGELOG} is refused: {reason}")
    if CHANGELOG not in members.files:
        raise SourceError(f"{archive.path.name} holds no {CHANGELOG}")
    try:
        return members.files[CHANGELOG].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{CHANGELOG}: invalid UTF-8 at byte {error.start}") from error


def _document(package: Package, release: Release, group: str) -> Document:
    return Document(
        collection=package.name,
        name=release.version,
        title=f"{package.title} {release.version}",
        text=release.text,
        published=release.published,
        date_kind="release",
        language="zh",
        licence=LICENCE,
        url=package.page,
        group=f"{NAME}:{package.name}:{group}",
    )


def in_order(releases: Sequence[Release]) -> list[Release]:
    """The releases of one changelog, the newest first, with a problem where two neighbours' days contradict that order.

    Which of the two days is wrong cannot be told, so neither release is used.
    """
    dated = [place for place, release in enumerate(releases) if release.published is not None]
    wrong: dict[int, str] = {}
    for above, below in pairwise(dated):
        newer, older = releases[above], releases[below]
        if newer.published and older.published and older.published > newer.published:
            reason = (
                f"{older.version} ({older.published}) stands below {newer.version} ({newer.published}), "
                "so one of the two days is wrong"
            )
            wrong |= {above: reason, below: reason}
    return [replace(release, problem=release.problem or wrong.get(place)) for place, release in enumerate(releases)]


def groups_of(releases: Sequence[Release]) -> list[str]:
    """The group of each release of one package: what is connected by a day, or by a version less its pre-release part.

    A group is called after the earliest day in it.
    """
    parent = list(range(len(releases)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    first: dict[str, int] = {}
    for place, release in enumerate(releases):
        for key in (str(release.published), f"version {release.version.partition('-')[0]}"):
            parent[root(place)] = root(first.setdefault(key, place))
    days: dict[int, str] = {}
    for place, release in enumerate(releases):
        day = str(release.published)
        days[root(place)] = min(days.get(root(place), day), day)
    return [days[root(place)] for place in range(len(releases))]


_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?|\d+(?:\.\d+)?\.x)\b")
_DATE = re.compile(r"(?<!\d)(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")


def releases_in(markdown: str) -> Iterator[Release]:
    """The releases in a changelog: one a heading that begins with a version and names one day.

    A heading of a whole line of versions (``0.x``), one without a day or with several, and a release whose notes hold
    no Chinese character, are yielded with a problem.
    """
    heading: str | None = None
    lines: list[str] = []
    for kind, line in _lines(markdown):
        if kind == "heading" and _begins_release(line):
            if heading is not None:
                yield _release(heading, lines)
            heading, lines = line, []
        elif heading is not None and (kind == "text" or _HAN.search(line)):
            lines.append(line)
    if heading is not None:
        yield _release(heading, lines)


def _begins_release(heading: str) -> bool:
    version = _VERSION.search(heading)
    # Nothing but signs before it: "升级到 1.0.0" is a heading of the notes.
    return version is not None and not re.search(r"\w", heading[: version.start()])


def _release(heading: str, lines: Sequence[str]) -> Release:
    found = _VERSION.search(heading)
    version = found.group(1) if found else heading
    days = _DATE.findall(heading)
    if version.endswith(".x"):
        return Release(version, None, "", "not a release but a pointer to the notes of many")
    if len(days) != 1:
        return Release(version, None, "", "no day in its heading" if not days else "several days in its heading")
    try:
        published = date(*map(int, days[0]))
    except ValueError:
        return Release(version, None, "", f"no such day: {'-'.join(days[0])}")
    release = Release(version, published, "\n".join(lines))
    return release if _HAN.search(release.text) else replace(release, problem="no Chinese character in its notes")


def _lines(markdown: str) -> Iterator[tuple[str, str]]:
    """What a reader sees, line by line: ("heading" or "text", line). Code blocks and raw HTML blocks are left out."""
    kind = "text"
    # Without HTML, "<a>" in a sentence about the tag stays what its writer meant: text.
    for token in MarkdownIt("commonmark", {"html": False}).parse(_without_front_matter(markdown)):
        if token.type == "heading_open":
            kind = "heading"
        elif token.type == "heading_close":
            kind = "text"
        elif token.type == "inline":
            for line in _inline_text(token.children or []).split("\n"):
                tidy = _tidy(line)
                if tidy:
                    yield kind, tidy


def _without_front_matter(markdown: str) -> str:
    return re.sub(r"\A\s*---\n.*?\n---\n", "", markdown.replace("\r\n", "\n"), count=1, flags=re.DOTALL)


def _inline_text(tokens: Sequence[Token]) -> str:
    """The text of a paragraph, a heading or an entry: code as it stands, the rest without references and names."""
    # Private-use characters stand for code until the rest is cleaned, so that `#1` or `@enter` in code survives.
    kept: list[str] = []
    pieces: list[str] = []
    link: list[str] | None = None
    for token in tokens:
        target = pieces if link is None else link
        if token.type == "link_open":
            link = []
        elif token.type == "link_close" and link is not None:
            pieces.append(_link_text("".join(link)))
            link = None
        elif token.type == "code_inline":
            target.append(f"\ue000{len(kept)}\ue001")
            kept.append(token.content)
        elif token.type == "text":
            target.append(token.content.replace("\ue000", "").replace("\ue001", ""))
        elif token.type in ("softbreak", "hardbreak"):
            target.append("\n")
    text = _without_references("".join(pieces))
    return re.sub("\ue000(\\d+)\ue001", lambda place: kept[int(place.group(1))], text)


_REFERENCE_LABEL = re.compile(r"@|#\d+|^\W*[0-9a-f]{6,40}\W*$|https?://", re.IGNORECASE)


def _link_text(label: str) -> str:
    """What stays of a link: its label, unless that is a number of a pull request, a commit, an address or a name.

    Of those stays a number, for the next step to remove with what leads to it: "closes #1".
    """
    return " #0 " if _REFERENCE_LABEL.search(label) else label


_REFERENCES = (
    re.compile(r"https?://[^\s)\]）】，。]+", re.IGNORECASE),
    # Not an address of mail, nor a package in a scope (@vue/cli).
    re.compile(r"(?<![A-Za-z0-9/.@-])@[A-Za-z0-9][A-Za-z0-9-]*(?![A-Za-z0-9/-])"),
    re.compile(r"\[issue\]|\bmerge request !\d+|\b(?:issue|pr) ?\d+\b", re.IGNORECASE),
    re.compile(r"(?:\b(?:close[sd]?|fix(?:e[sd])?|issues?|pr|common|icons)\b[\s:：]*)?#\d+\b", re.IGNORECASE),
)
_EMPTY_BRACKETS = re.compile(r"[(\[（【][\s,，、;；.]*[)\]）】]")


def _without_references(text: str) -> str:
    for reference in _REFERENCES:
        text = reference.sub(" ", text)
    while (emptied := _EMPTY_BRACKETS.sub(" ", text)) != text:
        text = emptied
    return text


def _tidy(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip(" ,，、;；") if re.search(r"\w", line) else ""


PACKAGES: Mapping[str, Package] = {
    package.name: package
    for package in (
        Package("tdesign-vue-next", "TDesign Vue Next", "https://tdesign.tencent.com/vue-next/changelog"),
        Package("tdesign-react", "TDesign React", "https://tdesign.tencent.com/react/changelog"),
        Package("tdesign-vue", "TDesign Vue", "https://tdesign.tencent.com/vue/changelog"),
        Package("tdesign-mobile-vue", "TDesign Mobile Vue", "https://tdesign.tencent.com/mobile-vue/changelog"),
        Package("tdesign-mobile-react", "TDesign Mobile React", "https://tdesign.tencent.com/mobile-react/changelog"),
        Package("tdesign-miniprogram", "TDesign Miniprogram", "https://tdesign.tencent.com/miniprogram/changelog"),
    )
}
