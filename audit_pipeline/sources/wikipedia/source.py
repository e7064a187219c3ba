"""Declaration of the source `wikipedia`, and its settings."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from audit_pipeline.config.validation import Language, Text
from audit_pipeline.sources.base import FILE_NAME, Collection, Source, SourceSection, build_lazy_fetch

NAME = "wikipedia"
LICENCE = "CC BY-SA 4.0"

Part = Literal["lead", "article"]

LEFT_OUT_TITLE = r"^(?:Timeline|List|Lists|Outline|Index) of\b|(?:列表|年表)$"


def _require_regular_expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression ({error})") from error
    return value


Expression = Annotated[str, StringConstraints(min_length=1), AfterValidator(_require_regular_expression)]


class WikipediaSettings(SourceSection):
    """The settings of the source: event pages in categories of a Wikipedia."""

    categories: tuple[Text, ...] = Field(
        default=(), description="categories of pages, such as 2023 events; they require 'contact'"
    )
    depth: Annotated[int, Field(ge=0, le=10)] = Field(default=1, description="levels of subcategories")
    most_pages: Annotated[int, Field(ge=1)] = Field(default=1000, description="maximum number of pages")
    contact: Text | None = Field(
        default=None, description="an address at which the site can reach you; it is sent with every request"
    )
    seconds_between: Annotated[float, Field(ge=0.5, le=3600)] = Field(
        default=1.0, description="pause between two requests, in seconds"
    )
    days_kept: Annotated[int, Field(ge=0, le=36_500)] = Field(
        default=7, description="number of days for which a response of the API is reused"
    )
    language: Language = Field(default="en", description="language of the Wikipedia")
    part: Part = Field(
        default="article", description="article: the whole page; lead: the text before its first heading"
    )
    left_out_title: Expression | None = Field(
        default=LEFT_OUT_TITLE, description="pages whose title matches are left out"
    )
    collection: Collection = Field(default="events", description="a name for these pages")

    @property
    def missing_setting(self) -> str | None:
        """Return the instruction for a missing setting, or None if the source is ready."""
        if not self.categories:
            missing = "categories, such as 2023 events, and wikipedia.contact"
        elif self.contact is None:
            missing = "contact to an address at which the site can reach you: it is sent with every request"
        else:
            return None
        return f"set {NAME}.{missing} (config/{FILE_NAME})"


SOURCE = Source(
    NAME,
    "Event pages of Wikipedia by the day of their creation, from its API.",
    LICENCE,
    WikipediaSettings,
    build_lazy_fetch(__name__),
    on_request=True,
)
