"""What may be set of the source `wikipedia`, and what has to be before pages can be read.

What belongs here: the keys of config/sources.yaml and their checks. What does not: reading (harvest.py).
"""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from audit_pipeline.config.validation import Language, Text
from audit_pipeline.sources.base import FILE_NAME, Collection, SourceSection

NAME = "wikipedia"
LICENCE = "CC BY-SA 4.0"

Part = Literal["lead", "article"]

# A year at either end of a title: "2023 Foo floods", "Foo election, 2023", "2023–24 Foo season", "2023年…".
EVENT_TITLE = r"^(?:1\d|20)\d\d(?!\d)|(?<!\d)(?:1\d|20)\d\d\)?$"
# A category that begins with a year ("2023 floods in Asia", "2023年…") or is of events, but not of people and works.
EVENT_CATEGORY = (
    r"^(?:(?:1\d|20)\d\d(?!\d)(?!s)|events (?:in|by)\b)"
    r"(?!.*(?:\b(?:births|deaths|(?:dis)?establishments|introductions|debuts|endings|albums|songs|singles|EPs|films|"
    r"novels|books|plays|paintings|sculptures|poems|essays|comics|games|software|series|episodes|ships|vehicles|"
    r"works|archaeological discoveries|species described|architecture)\b|出生|逝世|建立|成立|電影|电影|專輯|专辑|歌曲))"
)
LEFT_OUT_TITLE = r"^(?:Timeline|List|Lists|Outline|Index) of\b|(?:列表|年表)$"


def _require_regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from error
    return value


Expression = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_regular_expression)]


class WikipediaSettings(SourceSection):
    """Event pages of a Wikipedia: from a dump, from the parquet form, from the API; any of them, or several.

    ``dump``: a MediaWiki XML export (.xml, .xml.bz2, .xml.gz) or a folder of them. ``parquet``: a file of id, url,
    title, text (wikimedia/wikipedia), or a folder of them. ``dates``: page_id and created, .csv or .parquet, or a dump
    of histories, for pages whose first revision is in neither. ``categories``: those that the API walks, ``depth``
    levels of subcategories.

    ``as_of``: pages that existed on that day are taken as they then were, others as they are now. ``event_title`` and
    ``event_category`` choose pages of dump and parquet (one that matches is enough; None for both takes every page);
    the API's pages are chosen by ``categories``. ``left_out_title`` is left out everywhere.
    """

    dump: Path | None = Field(
        default=None, description="a MediaWiki XML export (.xml, .xml.bz2, .xml.gz), or a folder of them"
    )
    parquet: Path | None = Field(
        default=None, description="a file with id, url, title and text, or a folder of them; it needs dates"
    )
    dates: Path | None = Field(
        default=None,
        description="page_id and created (.csv, .parquet), or a dump of histories: for pages without first revision",
    )
    categories: tuple[Text, ...] = Field(
        default=(), description="categories that the API is asked for, such as 2023 events; they need contact"
    )
    depth: Annotated[int, Field(ge=0, le=10)] = Field(default=1, description="levels of subcategories")
    most_pages: Annotated[int, Field(ge=1)] = Field(default=1000, description="at most so many pages of the API")
    contact: Text | None = Field(
        default=None, description="an address at which the site can reach you; it is sent with every request"
    )
    seconds_between: Annotated[float, Field(ge=0.5, le=3600)] = Field(
        default=1.0, description="pause between two requests, in seconds"
    )
    days_kept: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=7, description="for how many days an answer of the API is used again"
    )
    language: Language = Field(default="en", description="of the Wikipedia")
    part: Part = Field(
        default="article", description="article: the whole page; lead: what stands before its first heading"
    )
    as_of: date | None = Field(
        default=None, description="pages that existed on that day are taken as they then were; None: as they are now"
    )
    event_title: Expression | None = Field(
        default=EVENT_TITLE, description="pages of dump and parquet whose title matches this expression are taken"
    )
    event_category: Expression | None = Field(
        default=EVENT_CATEGORY, description="and those with a category that matches this one; None for both: every page"
    )
    left_out_title: Expression | None = Field(
        default=LEFT_OUT_TITLE, description="pages whose title matches this expression are left out"
    )
    collection: Collection = Field(default="events", description="a name for these pages")

    @property
    def to_be_set(self) -> str | None:
        """What has to be set before pages can be read; None where they can be."""
        if self.dump is None and self.parquet is None and not self.categories:
            return (
                f"set wikipedia.dump or wikipedia.parquet in config/{FILE_NAME} to a file or folder, "
                "or wikipedia.categories and wikipedia.contact"
            )
        if self.categories and self.contact is None:
            return (
                f"set wikipedia.contact in config/{FILE_NAME} to an address at which the site can reach you: "
                "it is sent with every request"
            )
        if self.parquet is not None and self.dates is None:
            return f"set wikipedia.dates in config/{FILE_NAME}: the parquet form does not say when a page was created"
        return None
