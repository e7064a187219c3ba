"""The parquet form of a Wikipedia (wikimedia/wikipedia): id, url, title and plain text of each page.

What belongs here: reading its rows. What does not: dates, which it does not have (pages.py), and wikitext
(dump.py).

There are no categories, so titles alone choose the event pages; and no revisions, so a page that existed on ``as_of``
cannot be had as it was. Headings are on lines of their own, unmarked: a short line without a full stop is taken for
one where the lead ends, and one that names references or links ends the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from audit_pipeline.catalogue.files import open_parquet
from audit_pipeline.connectors.wikipedia.pages import (
    Choice,
    CreationDates,
    LeftOutPages,
    choice_of,
    date_problem,
    harvest_files,
)
from audit_pipeline.connectors.wikipedia.pages import build_wikipedia_document as document_of
from audit_pipeline.connectors.wikipedia.settings import Part, WikipediaSettings
from audit_pipeline.connectors.wikipedia.wikitext import is_tail_heading
from audit_pipeline.errors import DataError
from audit_pipeline.fetch.rows import text_problem
from audit_pipeline.sources.base import Document, Harvest

COLUMNS = ("id", "url", "title", "text")
_BATCH = 256
_LONGEST_HEADING = 80
_ENDS_OF_SENTENCES = (".", "!", "?", ":", ";", ",", "。", "!", "?", ":", ";", ",", '"', "”", "」")


def harvest_parquet(settings: WikipediaSettings, dates: CreationDates) -> Harvest:
    """The event pages, by title, of the file or folder ``settings.parquet``; nothing where it is not set.

    Files that cannot be read are missing; what came before the damage is taken.
    """
    path = settings.parquet
    if path is None:
        return Harvest(())
    choice = choice_of(settings)

    def documents_of(file: Path, left_out: LeftOutPages) -> Iterator[Document]:
        for number, row in enumerate(_read_rows(file), 1):
            document = _document(number, row, settings, choice, dates, left_out)
            if document is not None:
                yield document

    return harvest_files(path, path.rglob("*"), (".parquet",), settings.collection, documents_of)


def remove_tail_sections(text: str, part: Part) -> str:
    """The text up to its references and links; up to its first heading for ``lead``."""
    kept: list[str] = []
    for line in text.split("\n"):
        if is_tail_heading(line) or (part == "lead" and kept and _is_heading_line(line)):
            break
        kept.append(line.strip())
    return "\n".join(kept).strip()


def _is_heading_line(line: str) -> bool:
    line = line.strip()
    return 0 < len(line) <= _LONGEST_HEADING and not line.endswith(_ENDS_OF_SENTENCES)


def _read_rows(path: Path) -> Iterator[Mapping[str, object]]:
    try:
        with open_parquet(path) as file:
            absent = [name for name in COLUMNS if name not in file.schema_arrow.names]
            if absent:
                raise DataError(f"{path}: no column {' and '.join(absent)}; it is not wikimedia/wikipedia's form")
            for batch in file.iter_batches(batch_size=_BATCH, columns=list(COLUMNS)):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read to its end ({str(error).splitlines()[0]})") from error


def _document(
    number: int,
    row: Mapping[str, object],
    settings: WikipediaSettings,
    choice: Choice,
    dates: CreationDates,
    left_out: LeftOutPages,
) -> Document | None:
    title, identity, text = str(row["title"] or ""), str(row["id"] or ""), row["text"]
    if choice.is_left_out(title):
        left_out.count("a timeline or list by its title", title)
        return None
    if not choice.is_event(title, tuple):
        left_out.count("not an event page by title (this form has no categories)", title)
        return None
    if not identity.isdecimal() or len(identity) > 18:
        left_out.name(f"row {number} ({title})", f"its id is no page id: {identity[:40]!r}")
        return None
    created = dates.get(int(identity))
    problem = date_problem(created, None, settings.as_of)
    plain = ""
    if problem is None:
        plain = remove_tail_sections(text, settings.part) if isinstance(text, str) else ""
        problem = f"its text {unusable}" if (unusable := text_problem(plain)) else None
    if problem is not None:
        left_out.name(title, problem)
        return None
    url = str(row["url"] or f"https://{settings.language}.wikipedia.org/w/index.php?curid={identity}")
    return document_of(settings, int(identity), title, plain, created, url)
