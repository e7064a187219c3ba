"""A source's section of config/sources.yaml: what every section shares.

What belongs here: the base class of the sections, and the types of their fields. What does not: any one section
(`<source>_settings.py`, or config.py for the first ones) and reading the file (config.py).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import StringConstraints

from audit_pipeline.config.validating import StrictSettings

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]


class Section(StrictSettings):
    """One source's settings."""

    @property
    def to_be_set(self) -> str | None:
        """What the user has to set before the source can be fetched, in words; None where it is ready."""
        return None
