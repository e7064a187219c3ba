"""One benchmark: a family's settings at one length in words.

What belongs here: what everybody asks of a benchmark, whatever builds it. What does not: reading the file (config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from audit_pipeline.benchmarks.family import Design, FamilySettings, described

FILE_NAME = "benchmarks.yaml"

F = TypeVar("F", bound=FamilySettings)


def name_of(family: str, words: int | None) -> str:
    """The name of a family's benchmark of that length (None: of any)."""
    return family if words is None else f"{family}_{words}"


@dataclass(frozen=True)
class BenchmarkSpec:
    """One benchmark: a family's settings at one length in words. Its name is its partition in Dagster.

    ``words`` None means texts of any length; the family is then one benchmark, of its own name. ``relative`` are the
    words that cutoffs were given in, by key; the settings hold the dates that they mean now.
    """

    family: str
    words: int | None
    settings: FamilySettings
    relative: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        return name_of(self.family, self.words)

    @property
    def title(self) -> str | None:
        """What people call it, with its length where the family has several; None where its entry has no title."""
        lengths = self.settings.words
        if self.settings.title is None or lengths is None or len(lengths) == 1:
            return self.settings.title
        return f"{self.settings.title} ({self.words} words a text)"

    def settings_of(self, kind: type[F]) -> F:
        """The settings as those of one builder, or of one kind of builders; raises TypeError where they are others'."""
        if not isinstance(self.settings, kind):
            raise TypeError(f"{self.name} is not built by what {kind.__name__} are for")
        return self.settings

    @property
    def length(self) -> int:
        """The one length; raises TypeError where texts are of any, which no builder that cuts texts accepts."""
        if self.words is None:
            raise TypeError(f"{self.name} has no one length")
        return self.words

    @property
    def is_exact(self) -> bool:
        """Whether every text has exactly ``words`` words."""
        return self.words is not None and self.settings.every_length_exact

    @property
    def design(self) -> Design:
        """How the two sides came about; what may be claimed depends on it."""
        return self.settings.design

    @property
    def design_stated_by(self) -> str | None:
        """Whose word the design is; None where it follows from how the texts are drawn here."""
        follows = self.settings.design_follows or self.design == "unlabelled"
        return None if follows else f"whoever wrote config/{FILE_NAME}"

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none where it is made of rows."""
        return self.settings.read_sources

    @property
    def control(self) -> str | None:
        """The control whose texts it is made of; its labels say something of that control's models alone."""
        return self.settings.made_of_control

    @property
    def is_relative(self) -> bool:
        """Whether a cutoff is told by today, so that it moves when the day is rolled."""
        return bool(self.relative)

    def described(self) -> dict[str, Any]:
        """The entry as JSON values, with the one length (null: any) in place of the family's list."""
        entry = {"family": self.family, **described(self.settings), "words": self.words}
        return {**entry, "relative": dict(self.relative)} if self.relative else entry
