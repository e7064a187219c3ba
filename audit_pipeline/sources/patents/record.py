"""Patent publications: their numbers, the check of their dates, and the grouping by invention."""

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
    """A patent publication.

    Attributes:
        number: The publication number.
        title: The title.
        parts: The texts of abstract, description and claims, before cleaning.
        published: The date of publication, after the check of dates.
        priority: The priority date, after the check of dates.
        keys: The keys of its family, its application, and the applications whose priority it claims. Patents that share
            a key belong to one group.
        url: The address of its page.
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
        """Return the country code."""
        return self.number[:2]


def parse_publication_number(text: str) -> str | None:
    """Parse a publication number, and return it without separators: CN107196804A. Return None for other texts."""
    number = _SEPARATORS.sub("", text).upper()
    return number if _PUBLICATION.fullmatch(number) else None


def build_page_address(number: str) -> str:
    """Return the address of a publication's page in Chinese."""
    return f"{SITE}/patent/{number}/zh"


def parse_day(text: str, field: str) -> date:
    """Parse a day such as 2024-05-31, 2024-05-31T00:00:00Z or 20240531.

    Raises:
        UnusableDocumentError: If the text is not a day. ``field`` is the name of the date in the message.
    """
    try:
        return date.fromisoformat(text.strip().partition("T")[0])
    except ValueError as error:
        raise UnusableDocumentError(f"{field} is not a date that can be read: {text.strip()[:40]!r}") from error


def require_consistent_dates(
    publication: Sequence[date], filing: Sequence[date], priority: Sequence[date], today: date
) -> tuple[date, date]:
    """Check the dates of a patent.

    Args:
        publication: All stated dates of publication.
        filing: All stated filing dates. They may be missing.
        priority: All stated priority dates.
        today: The current day.

    Returns:
        The date of publication and the priority date.

    Raises:
        UnusableDocumentError: If a date is missing, contradictory, in the future, or not in the order priority, filing,
            publication.
    """
    published = _require_single_date(publication, "publication")
    earliest = _require_single_date(priority, "priority")
    in_order = [("priority", earliest), ("publication", published)]
    if filing:
        in_order.insert(1, ("filing", _require_single_date(filing, "filing")))
    for (kind, day), (later_kind, later) in itertools.pairwise(in_order):
        if day > later:
            raise UnusableDocumentError(f"the {kind} date {day} is after the {later_kind} date {later}")
    if published > today:
        raise UnusableDocumentError(f"the publication date is in the future: {published}")
    return published, earliest


def _require_single_date(days: Sequence[date], kind: str) -> date:
    if not days:
        raise UnusableDocumentError(f"the patent has no {kind} date")
    different = sorted(set(days))
    if len(different) > 1:
        raise UnusableDocumentError(f"the patent has different {kind} dates: {' and '.join(map(str, different))}")
    return different[0]


def build_family_key(family: str) -> str | None:
    """Return the key for the id of a family, or None if the id stands for no family (empty, 0, -1)."""
    family = family.strip()
    if not family.isdigit() or int(family) <= 0:
        return None
    return f"family:{family}"


def build_application_key(text: str) -> str | None:
    """Return the key for the number of an application, or None if the text is not an application number.

    The spellings CN201710402626.6A, CN-201710402626-A and CN201710402626 have the same key.
    """
    number = _APPLICATION_END.sub("", _SEPARATORS.sub("", text).upper())
    if not re.fullmatch(r"(?:PCT/)?[A-Z]{2,3}\d[0-9/]{3,18}", number):
        return None
    return f"application:{number}"


def group_patents(patents: Sequence[Patent]) -> list[str]:
    """Return the group of each patent. Patents that share a key, directly or through others, share a group.

    The name of a group is its smallest family id. Without a family it is the smallest application number, and without
    both it is the publication number.
    """
    leader: dict[str, str] = {}

    def find_leader(key: str) -> str:
        leader.setdefault(key, key)
        while leader[key] != key:
            leader[key] = leader[leader[key]]
            key = leader[key]
        return key

    for patent in patents:
        for key in patent.keys:
            low, high = sorted((find_leader(f"publication:{patent.number}"), find_leader(key)), key=_build_sort_key)
            leader[high] = low
    return [find_leader(f"publication:{patent.number}") for patent in patents]


def _build_sort_key(key: str) -> tuple[int, int, str]:
    kind, _, name = key.partition(":")
    return ("family", "application", "publication").index(kind), len(name), name
