"""A crawl of patent pages: the list of publication numbers, and the page of each.

Every answer is in the client's cache before the next number is requested. A crawl that was killed, or that gave up,
goes on where it was when the source is fetched again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import LeftOut, MissingPart
from audit_pipeline.sources.patents.page import NOT_A_PATENT, RawPage
from audit_pipeline.sources.patents.record import SITE, page_address, parse_publication_number
from audit_pipeline.sources.web.polite_client import FetchedPage, FetchError, PoliteClient

_FIELD = b"publicationNumber"


def read_numbers(path: Path, countries: Sequence[str], limit: int | None = None) -> tuple[list[str], list[LeftOut]]:
    """Return the numbers in the text file at ``path``, in its order, each once, and the lines that are left out.

    A line holds a number, with or without separators; # begins a comment. Lines that hold none, numbers of other
    countries and what is over ``limit`` are left out. Raises SourceError where the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: invalid UTF-8 at byte {error.start}; save it as UTF-8") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror or error})") from error
    numbers: dict[str, None] = {}
    left_out: list[LeftOut] = []
    for place, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        number = parse_publication_number(text)
        if number is not None and number[:2] in countries:
            numbers[number] = None
        elif text:
            reason = f"not of {', '.join(countries)}: {number}" if number else f"no publication number: {text[:40]!r}"
            left_out.append(LeftOut(f"{path.name}:{place}", reason))
    taken = list(numbers)[:limit]
    if len(taken) < len(numbers):
        left_out.append(LeftOut(path.name, f"numbers over the limit of {limit}: {len(numbers) - len(taken)}"))
    return taken, left_out


def crawl_pages(numbers: Sequence[str], client: PoliteClient, site: str = SITE) -> Iterator[RawPage | MissingPart]:
    """Yield the pages of ``numbers`` at ``site``, and those that cannot be fetched.

    A missing part has the country as collection and the number as name, so that an earlier harvest's document is kept.
    """
    for number in numbers:
        try:
            page = client.get(page_address(number, site))
        except FetchError as error:
            yield MissingPart(number, str(error), number[:2], number)
        else:
            yield RawPage(number, page.content, page.url, page.charset)


def find_refusal(page: FetchedPage) -> str | None:
    """Return why an answer is no patent page: a site that is busy may say so in a page of its own."""
    return None if _FIELD in page.content else f"the answer is {NOT_A_PATENT}"
