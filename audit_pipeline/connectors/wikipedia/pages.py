"""Pages of a Wikipedia, wherever they were read: when each was created, which are taken, and the document of each.

What belongs here: the table of page ids and days (``dates`` in the settings), the choice of event pages, and counting
what is left out. What does not: reading pages (dump.py, parquet.py, api.py), and reading days of creation from a dump
of histories (dump.py).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from audit_pipeline.catalogue.files import open_parquet
from audit_pipeline.connectors.wikipedia.settings import LICENCE, WikipediaSettings
from audit_pipeline.connectors.wikipedia.wikitext import categories, is_redirect, plain_text
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.rows import text_problem
from audit_pipeline.sources.base import Document, Harvest, LeftOut, MissingPart

DATE_COLUMNS = ("page_id", "created")
_MOST_ROWS_NAMED = 100


class CreationDates:
    """Days by page id, in two sorted arrays: some hundred megabytes for the largest Wikipedia, not gigabytes."""

    def __init__(self, page_ids: Iterable[int] = (), days: Iterable[date] = ()) -> None:
        """Of a page named twice the earlier day holds."""
        numbers: npt.NDArray[np.int64] = np.fromiter(page_ids, np.int64)
        ordinals: npt.NDArray[np.int32] = np.fromiter((day.toordinal() for day in days), np.int32)
        order = np.lexsort((ordinals, numbers))
        self._page_ids = numbers[order]
        self._ordinals = ordinals[order]

    def __len__(self) -> int:
        return len(self._page_ids)

    def get(self, page_id: int) -> date | None:
        """The day on which the page was created; None where the table does not say."""
        place = int(np.searchsorted(self._page_ids, page_id))
        if place == len(self._page_ids) or self._page_ids[place] != page_id:
            return None
        return date.fromordinal(int(self._ordinals[place]))


def read_dates(path: Path) -> tuple[CreationDates, tuple[LeftOut, ...]]:
    """The dates in a .csv or .parquet file with the columns page_id and created, and the rows that cannot be read.

    ``created`` is a date, a timestamp (its day in UTC) or text that begins with an ISO date. Raises DataError where
    the file cannot be read or lacks a column.
    """
    page_ids, ordinals = array("q"), array("i")
    refused: list[LeftOut] = []
    unnamed = 0
    for row, (page_id, created) in enumerate(_read_date_rows(path), 1):
        day, problem = _parse_day(created)
        number, id_problem = _parse_page_id(page_id)
        if day is None or number is None:
            if len(refused) < _MOST_ROWS_NAMED:
                refused.append(LeftOut(f"{path.name}:{row}", problem or id_problem))
            else:
                unnamed += 1
            continue
        page_ids.append(number)
        ordinals.append(day.toordinal())
    if unnamed:
        refused.append(LeftOut(f"{path.name}: {unnamed} more rows", "no page id or no date"))
    return CreationDates(page_ids, map(date.fromordinal, ordinals)), tuple(refused)


def _read_date_rows(path: Path) -> Iterator[tuple[object, object]]:
    """Page id and date of each row, as they stand in the file."""
    columns = list(DATE_COLUMNS)
    try:
        if path.suffix.lower() == ".parquet":
            with open_parquet(path) as file:
                _require_date_columns(path, file.schema_arrow.names)
                for batch in file.iter_batches(columns=columns):
                    yield from _iterate_date_rows(batch)
        elif path.suffix.lower() == ".csv":
            as_text = pa.csv.ConvertOptions(column_types=dict.fromkeys(columns, pa.string()))
            with pa.csv.open_csv(path, convert_options=as_text) as reader:
                _require_date_columns(path, reader.schema.names)
                for batch in reader:
                    yield from _iterate_date_rows(batch)
        else:
            raise DataError(f"{path}: dates are read from .csv or .parquet files, and from dumps of histories")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: the dates cannot be read ({str(error).splitlines()[0]})") from error


def _require_date_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in DATE_COLUMNS if name not in names]
    if missing:
        raise DataError(f"{path}: no column {' and '.join(missing)}; the columns are: {', '.join(names)}")


def _iterate_date_rows(batch: pa.RecordBatch) -> Iterator[tuple[object, object]]:
    yield from zip(*(batch.column(name).to_pylist() for name in DATE_COLUMNS), strict=True)


def _parse_day(value: object) -> tuple[date | None, str]:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo is not None else value).date(), ""
    if isinstance(value, date):
        return value, ""
    try:
        return date.fromisoformat(str(value).strip()[:10]), ""
    except ValueError:
        return None, f"its date of creation cannot be read: {str(value)[:40]!r}"


def _parse_page_id(value: object) -> tuple[int | None, str]:
    try:
        number = int(str(value))
    except ValueError:
        return None, f"its page id is not a number: {str(value)[:40]!r}"
    return (number, "") if 0 < number < 2**63 else (None, f"its page id is out of range: {str(value)[:40]!r}")


DATE_KIND = "first revision"
# A dump of millions of pages must not bring a list of millions of reasons.
MOST_NAMED = 500
_EXAMPLES = 3


@dataclass(frozen=True)
class PageText:
    """A page with one of its revisions; ``created`` None where its first revision is not known."""

    page_id: int
    title: str
    revision_id: int | None
    wikitext: str
    created: date | None
    written: date | None


class LeftOutPages:
    """What an input did not yield: kinds of page that are not sought are counted, pages that are spoilt are named."""

    def __init__(self, part: str) -> None:
        """``part`` names the input."""
        self._part = part
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}
        self._named: list[LeftOut] = []
        self._unnamed: dict[str, int] = {}

    def count(self, reason: str, title: str) -> None:
        """One page of a kind that is not sought."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        examples = self._examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(title)

    def name(self, page: str, reason: str) -> None:
        """One page that is sought but cannot be used; after MOST_NAMED of them they are counted."""
        if len(self._named) < MOST_NAMED:
            self._named.append(LeftOut(f"{self._part}: {page}", reason))
        else:
            self._unnamed[reason] = self._unnamed.get(reason, 0) + 1

    def entries(self) -> tuple[LeftOut, ...]:
        """The kinds with their counts, then the named pages, then the counts of those that were too many to name."""
        kinds = [
            LeftOut(
                f"{self._part}: {format_page_count(count)} ({_format_examples(self._examples[reason], count)})", reason
            )
            for reason, count in self._counts.items()
        ]
        rest = [
            LeftOut(f"{self._part}: {format_page_count(count)} more", reason) for reason, count in self._unnamed.items()
        ]
        return (*kinds, *self._named, *rest)


@dataclass(frozen=True)
class Choice:
    """Which titles and categories are sought, compiled once."""

    title: re.Pattern[str] | None
    category: re.Pattern[str] | None
    left_out: re.Pattern[str] | None

    def is_left_out(self, title: str) -> bool:
        """Whether pages of this title are never taken ("List of …")."""
        return self.left_out is not None and self.left_out.search(title) is not None

    def is_event(self, title: str, named_categories: Callable[[], tuple[str, ...]]) -> bool:
        """Whether title or one of the categories is an event's; every page where neither is asked for."""
        if self.title is None and self.category is None:
            return True
        if self.title is not None and self.title.search(title):
            return True
        return self.category is not None and any(map(self.category.search, named_categories()))


def choice_of(settings: WikipediaSettings) -> Choice:
    """The choice that the settings make."""
    patterns = (settings.event_title, settings.event_category, settings.left_out_title)
    return Choice(*(re.compile(pattern, re.IGNORECASE) if pattern else None for pattern in patterns))


def harvest_files(
    path: Path,
    candidates: Iterable[Path],
    suffixes: tuple[str, ...],
    collection: str,
    documents_of: Callable[[Path, LeftOutPages], Iterator[Document]],
) -> Harvest:
    """The documents of the file at ``path``, or of the ``candidates`` in that folder with one of the ``suffixes``.

    A file that cannot be read to its end (``documents_of`` raises DataError) is missing from there on: what came before
    is taken.
    """
    files = [path] if path.is_file() else sorted(file for file in candidates if file.name.endswith(suffixes))
    if not files:
        problem = f"holds no {', '.join(suffixes)} file" if path.is_dir() else "no such file or folder"
        return Harvest((), (MissingPart(path.name, f"{path}: {problem}", collection),))
    documents: list[Document] = []
    missing: list[MissingPart] = []
    left_out: list[LeftOut] = []
    for file in files:
        not_taken = LeftOutPages(file.name)
        try:
            for document in documents_of(file, not_taken):
                documents.append(document)  # One by one: what came before a break stays.
        except DataError as error:
            missing.append(MissingPart(file.name, str(error), collection))
        left_out += not_taken.entries()
    return Harvest(tuple(documents), tuple(missing), tuple(left_out))


def build_page_document(
    page: PageText, settings: WikipediaSettings, choice: Choice, left_out: LeftOutPages, *, is_chosen: bool = False
) -> Document | None:
    """The document that a page becomes, or None with the reason in ``left_out``.

    ``is_chosen``: it is an event page already, by the category that it was found in.
    """
    if choice.is_left_out(page.title):
        left_out.count("a timeline or list by its title", page.title)
        return None
    if is_redirect(page.wikitext):
        left_out.count("a redirect", page.title)
        return None
    if not is_chosen and not choice.is_event(page.title, lambda: categories(page.wikitext)):
        left_out.count("not an event page by title or category", page.title)
        return None
    problem = date_problem(page.created, page.written, settings.as_of)
    if problem is None:
        try:
            text = plain_text(page.wikitext, settings.part)
        except DataError as error:
            problem = str(error)
        else:
            problem = f"its text {unusable}" if (unusable := text_problem(text)) else None
    if problem is not None:
        left_out.name(page.title, problem)
        return None
    revision = f"&oldid={page.revision_id}" if page.revision_id is not None else ""
    url = f"https://{settings.language}.wikipedia.org/w/index.php?curid={page.page_id}{revision}"
    return build_wikipedia_document(settings, page.page_id, page.title, text, page.created, url)


def build_wikipedia_document(
    settings: WikipediaSettings, page_id: int, title: str, text: str, created: date | None, url: str
) -> Document:
    """A page's document; its name is the page's id, which a move to another title does not change."""
    return Document(
        collection=settings.collection,
        name=str(page_id),
        title=title,
        text=text,
        published=created,
        date_kind=DATE_KIND,
        language=settings.language,
        licence=LICENCE,
        url=url,
    )


def date_problem(created: date | None, written: date | None, as_of: date | None) -> str | None:
    """Why a page's dates forbid its use: created on an unknown day, or not available as it was; None where they do not.

    ``written`` is the day of the revision at hand, None where it is not known.
    """
    if created is None:
        return "no date of creation: its first revision is not here, and `dates` does not name it"
    if as_of is None or created > as_of:
        return None
    if written is None:
        return f"existed on {as_of}, and its text of that day is not here"
    return f"existed on {as_of}, but its text here is of {written}" if written > as_of else None


def format_page_count(count: int) -> str:
    """1 page, 2 pages."""
    return "1 page" if count == 1 else f"{count} pages"


def _format_examples(titles: list[str], count: int) -> str:
    return ", ".join(titles) + (", …" if count > len(titles) else "")
