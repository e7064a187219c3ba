"""The source `wikipedia`: what may be set, and the source as the registry knows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from audit_pipeline.config.validation import Language, Text
from audit_pipeline.sources.base import FILE_NAME, Collection, Source, SourceSection, import_and_harvest

NAME = "wikipedia"
LICENCE = "CC BY-SA 4.0"

Part = Literal["lead", "article"]

# A year at either end of a title: "2023 Foo floods", "Foo election, 2023", "2023–24 Foo season", "2023年…".
EVENT_TITLE = r"^(?:1\d|20)\d\d(?!\d)|(?<!\d)(?:1\d|20)\d\d\)?$"
LEFT_OUT_TITLE = r"^(?:Timeline|List|Lists|Outline|Index) of\b|(?:列表|年表)$"


def _require_regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from error
    return value


Expression = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_regular_expression)]


class WikipediaSettings(SourceSection):
    """Event pages of a Wikipedia, from a data set of its pages, from the API, or from both.

    A data set (``hub`` or ``path``) has no dates and no categories: ``dates`` says when its pages were created, and
    ``event_title`` chooses them. The API's pages are chosen by ``categories``.
    """

    hub: Text | None = Field(
        default=None, description="data set of the hub, such as wikimedia/wikipedia; it needs subset and dates"
    )
    path: Path | None = Field(default=None, description="a local folder laid out as the hub's, in the hub's place")
    subset: Text | None = Field(
        default=None, description="the data set's snapshot and language, a folder of it, such as 20231101.en"
    )
    dates: Path | None = Field(
        default=None, description="page_id and created (.csv, .parquet): when the data set's pages were created"
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
        default="article", description="article: the whole page; lead: the text before its first heading"
    )
    event_title: Expression | None = Field(
        default=EVENT_TITLE, description="pages of the data set whose title matches are taken; None: every page"
    )
    left_out_title: Expression | None = Field(
        default=LEFT_OUT_TITLE, description="pages whose title matches are left out"
    )
    collection: Collection = Field(default="events", description="a name for these pages")

    @property
    def to_be_set(self) -> str | None:
        """What has to be set before pages can be read; None where they can be."""
        from_data_set = self.hub is not None or self.path is not None
        if not from_data_set and not self.categories:
            missing = "hub or path, or categories and contact"
        elif from_data_set and (self.subset is None or self.dates is None):
            missing = "subset and dates: the data set has a folder for each snapshot, and says nothing of dates"
        elif self.categories and self.contact is None:
            missing = "contact to an address at which the site can reach you: it is sent with every request"
        else:
            return None
        return f"set {NAME}.{missing} (config/{FILE_NAME})"


SOURCE = Source(
    NAME,
    "Event pages of Wikipedia by the day of their creation: from the API, or from a data set of its pages.",
    LICENCE,
    WikipediaSettings,
    import_and_harvest(__name__),
    on_request=True,
)
