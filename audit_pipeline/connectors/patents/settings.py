"""The section `patents` of config/sources.yaml.

What belongs here: what may be set, and what has to be. What does not: the source (patents.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from audit_pipeline.connectors.patents.cleaning import CleaningRules
from audit_pipeline.connectors.patents.record import PARTS, Part
from audit_pipeline.sources.section import Section, Text

Country = Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")]


class PatentsSettings(Section):
    """Where patents are read from (any of three ways, or several), which of them, and how they are cleaned."""

    pages: Path | None = Field(default=None, description="saved pages: a folder of .html, .html.gz, .warc, .warc.gz")
    export: Path | None = Field(default=None, description="export of patents-public-data: a file or a folder of them")
    crawl: Path | None = Field(default=None, description="a text file of publication numbers to ask the site for")
    contact: Text | None = Field(default=None, description="who crawls: an address that goes into the user agent")
    limit: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="only so many numbers of the crawl's file, from its top; None: all"
    )
    seconds_between: Annotated[float, Field(ge=1, le=3600)] = Field(
        default=3, description="between two requests, seconds"
    )
    countries: Annotated[tuple[Country, ...], Field(min_length=1)] = ("CN",)
    parts: Annotated[tuple[Part, ...], Field(min_length=1)] = PARTS
    cleaning: CleaningRules = CleaningRules()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for key in ("countries", "parts"):
            values = getattr(self, key)
            if len(set(values)) != len(values):
                raise ValueError(f"{key}: one of them is named twice")
        return self

    @property
    def to_be_set(self) -> str | None:
        """What the user has to set before the source can be fetched, in words; None where it is ready."""
        if self.pages is None and self.export is None and self.crawl is None:
            return "set patents.pages, patents.export or patents.crawl in config/sources.yaml to your file or folder"
        if self.crawl is not None and self.contact is None:
            return "set patents.contact in config/sources.yaml to an address at which the site can reach you"
        return None
