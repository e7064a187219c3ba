"""One patent publication: its number, the check of its dates, and which publications are one invention."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from audit_pipeline.sources.base import UnusableDocumentError

Part = Literal["abstract", "description", "claims"]
PARTS: tuple[Part, ...] = ("abstract", "description", "claims")

SITE = "https://patents.google.com"

_PUBLICATION = re.compile(r"[A-Z]{2}\d{5,13}[A-Z]\d?")
_SEPARATORS = re.compile(r"[\s:\-]")
_APPLICATION_END = re.compile(r"(?:\.[0-9X])?(?:[A-Z]\d?)?$")


@dataclass(frozen=True)
class Patent:
    """One publication: ``parts`` are raw texts; ``published`` and ``priority`` have passed the check of dates.

    ``keys`` say which invention it is: its family and the applications that it is or takes priority from.
    """

    number: str
    title: str
    parts: Mapping[Part, str]
    published: date
    priority: date
    keys: tuple[str, ...]
    url: str

    @property
    def country(self) -> str:
        return self.number[:2]


def parse_publication_number(text: str) -> str | None:
    """Return a publication number without separators, as in CN107196804A; None where ``text`` is none."""
    number = _SEPARATORS.sub("", text).upper()
    return number if _PUBLICATION.fullmatch(number) else None


def build_page_address(number: str) -> str:
    """Return the address of a publication's page in Chinese."""
    return f"{SITE}/patent/{number}/zh"


def parse_day(text: str, field: str) -> date:
    """Return the day in 2024-05-31, 2024-05-31T00:00:00Z or 20240531; UnusableDocumentError names ``field``."""
    try:
        return date.fromisoformat(text.strip().partition("T")[0])
    except ValueError as error:
        raise UnusableDocumentError(f"unreadable date: {field} is {text.strip()[:40]!r}") from error


def require_consistent_dates(
    publication: Sequence[date], filing: Sequence[date], priority: Sequence[date], today: date
) -> tuple[date, date]:
    """Return the day of publication and the priority date, out of every day that is stated of each.

    Raises UnusableDocumentError where one of them is missing, where two statements differ, where they are out of order
    (priority, filing, publication), or where one lies after ``today``. A filing date may be missing.
    """
    published = _require_single_date(publication, "publication")
    earliest = _require_single_date(priority, "priority")
    in_order = [("priority", earliest), ("publication", published)]
    if filing:
        in_order.insert(1, ("filing", _require_single_date(filing, "filing")))
    for (kind, day), (later_kind, later) in itertools.pairwise(in_order):
        if day > later:
            raise UnusableDocumentError(f"{kind} date after {later_kind} date: {day} and {later}")
    if published > today:
        raise UnusableDocumentError(f"publication date in the future: {published}")
    return published, earliest


def _require_single_date(days: Sequence[date], kind: str) -> date:
    if not days:
        raise UnusableDocumentError(f"no {kind} date")
    different = sorted(set(days))
    if len(different) > 1:
        raise UnusableDocumentError(f"contradictory {kind} dates: {' and '.join(map(str, different))}")
    return different[0]


def build_family_key(family: str) -> str | None:
    """Return the key of a family by its id; None for the ids that mean 'no family' (empty, 0, -1)."""
    family = family.strip()
    return f"family:{family}" if family.isdigit() and int(family) > 0 else None


def build_application_key(text: str) -> str | None:
    """Return the key of an application, the same for CN201710402626.6A, CN-201710402626-A and CN201710402626."""
    number = _APPLICATION_END.sub("", _SEPARATORS.sub("", text).upper())
    return f"application:{number}" if re.fullmatch(r"(?:PCT/)?[A-Z]{2,3}\d[0-9/]{3,18}", number) else None


def group_patents(patents: Sequence[Patent]) -> list[str]:
    """Return the group of each patent, in order: those that share a key, directly or through others, have the same.

    It is named by the smallest family id among them, else by the smallest application number, else by the smallest
    publication number.
    """
    leader: dict[str, str] = {}

    def lead(key: str) -> str:
        leader.setdefault(key, key)
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for patent in patents:
        for key in patent.keys:
            low, high = sorted((lead(f"publication:{patent.number}"), lead(key)), key=_rank)
            leader[high] = low
    return [lead(f"publication:{patent.number}") for patent in patents]


def _rank(key: str) -> tuple[int, int, str]:
    kind, _, name = key.partition(":")
    return ("family", "application", "publication").index(kind), len(name), name
