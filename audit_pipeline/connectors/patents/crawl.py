"""The crawl: a list of publication numbers to raw pages, through the polite client.

What belongs here: the list, the addresses, and when to give up. What does not: how a server is asked (polite.py) and
what a page says (page.py).

Every answer is in the client's store before the next number is asked for. A crawl that was killed, or that gave up,
goes on where it was when the source is fetched again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.connectors.patents.page import LARGEST_PAGE, NOT_A_PATENT, RawPage
from audit_pipeline.connectors.patents.record import page_address, publication_number
from audit_pipeline.connectors.polite import FetchError, PoliteClient
from audit_pipeline.connectors.responses import FetchedPage
from audit_pipeline.errors import SourceError
from audit_pipeline.fetch.opened import MEBIBYTE
from audit_pipeline.sources.base import LeftOut, MissingPart

SITE = "https://patents.google.com"
_LARGEST_LIST = 64 * MEBIBYTE
# So many failures in a row that are not about a single page mean that the site is out of reach, or wants none of this.
_ENOUGH_FAILURES = 3
_ABOUT_ONE_PAGE = frozenset((400, 404, 410))
_FIELD = b"publicationNumber"

Found = RawPage | LeftOut | MissingPart


@dataclass(frozen=True)
class NumberList:
    """The publication numbers of a list in its order, each once, and lines that are none."""

    numbers: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def read_numbers(path: Path, countries: Sequence[str], limit: int | None = None) -> NumberList:
    """The numbers in the text file at ``path``: one per line, with or without separators; # begins a comment.

    Lines that hold none, numbers of other countries and what is over ``limit`` are left out.
    Raises SourceError where the file cannot be read.
    """
    try:
        if path.stat().st_size > _LARGEST_LIST:
            raise SourceError(f"{path}: larger than {_LARGEST_LIST} bytes; a list of numbers is not")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    numbers: dict[str, None] = {}
    left_out: list[LeftOut] = []
    for place, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        number = publication_number(text)
        if not text:
            continue
        if number is None:
            left_out.append(LeftOut(f"{path.name}:{place}", f"no publication number: {text[:40]!r}"))
        elif number[:2] not in countries:
            left_out.append(LeftOut(f"{path.name}:{place}", f"not of {', '.join(countries)}: {number}"))
        else:
            numbers[number] = None
    wanted = tuple(numbers)[:limit]
    if len(wanted) < len(numbers):
        left_out.append(LeftOut(path.name, f"numbers over the limit of {limit}: {len(numbers) - len(wanted)}"))
    return NumberList(wanted, tuple(left_out))


def crawled_pages(numbers: Sequence[str], client: PoliteClient, site: str = SITE) -> Iterator[Found]:
    """The pages of ``numbers`` at ``site``, and those that cannot be had.

    Missing carries the country as collection and the number as name, so that an earlier harvest's document is kept.
    After three failures in a row that are not about one page alone, only what is in the client's store is given; the
    other numbers are missing.
    """
    failures, last = 0, ""
    for number in numbers:
        if failures >= _ENOUGH_FAILURES:
            yield _missing(number, f"not asked for after {failures} failures in a row; the last: {last}")
            continue
        try:
            page = client.get(page_address(number, site), limit=LARGEST_PAGE, refused=_no_patent)
        except FetchError as error:
            last = str(error)
            failures = failures if error.status in _ABOUT_ONE_PAGE else failures + 1
            yield _missing(number, last)
        else:
            failures = 0
            yield RawPage(number, page.content, page.url, page.charset)


def _missing(number: str, reason: str) -> MissingPart:
    return MissingPart(number, reason, number[:2], number)


def _no_patent(page: FetchedPage) -> str | None:
    """Why an answer is no patent page: a site that is busy may say so in a page of its own."""
    return None if _FIELD in page.content else f"the answer is {NOT_A_PATENT}"
