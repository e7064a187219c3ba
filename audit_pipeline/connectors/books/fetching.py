"""Fetching books from a library, one after the other.

What belongs here: trying a book's addresses in turn, and giving up on a library that does not answer. What does not:
how one page is asked for (polite_client.py), and which books (gutenberg.py, standard_ebooks.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from audit_pipeline.connectors.answer_store import FetchedPage
from audit_pipeline.connectors.polite_client import FetchError, PoliteClient

MOST_FAILURES = 3
_ABSENT = frozenset((403, 404, 410))


def fetch_books(
    client: PoliteClient, books: Iterable[tuple[str, Sequence[str]]], limit: int
) -> Iterator[tuple[str, FetchedPage | str]]:
    """For each book (name, addresses to try in this order): its name, and its page or the reason why there is none.

    ``limit`` bytes of a page are taken at most. After MOST_FAILURES books in a row for which the library gave no
    answer (it may be down, or want to be left alone) it is not asked for the others.
    """
    failures = 0
    for name, addresses in books:
        if failures >= MOST_FAILURES:
            yield name, f"not fetched, because {failures} books in a row failed; try again later"
            continue
        page, reason, answered = _fetch_first_page(client, addresses, limit)
        failures = 0 if answered else failures + 1
        yield name, page if page is not None else reason


def _fetch_first_page(
    client: PoliteClient, addresses: Sequence[str], limit: int
) -> tuple[FetchedPage | None, str, bool]:
    """The first page there is; else the reason, and whether the library answered."""
    reasons: list[str] = []
    for address in addresses:
        try:
            return client.get(address, limit=limit), "", True
        except FetchError as error:
            reasons.append(str(error))
            if error.status not in _ABSENT:
                return None, "; ".join(reasons), False
    return None, "; ".join(reasons), True
