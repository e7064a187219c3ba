"""What an entry of config/benchmarks.yaml may hold, and one benchmark: such an entry at one length in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from audit_pipeline.benchmarks.words import UnitName
from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import Distinct, Language, Seed, StrictSettings, Text
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction.defaults import CHARS, COARSE_TO_FINE, PREFIX, SUFFIX, WindowLengths

ANY = "any"

Design = Literal["temporal", "randomised", "exchangeable", "selected", "unstated", "unlabelled"]
MEANINGS: Mapping[Design, str] = {
    "temporal": "by their dates, members are older",
    "randomised": "chance decided which texts the model was trained on",
    "exchangeable": "chance decided which texts are on which side",
    "selected": "by different rules, none of them the date",
    "unstated": "nobody stated how",
    "unlabelled": "it is unknown which texts are members",
}
LabelSource = Literal["dates", "publisher", "corpus", "training", "configuration", "none"]
"""What labels are known from: documents' dates, whoever published the rows, a search of a corpus that was read
completely, training a control here, the benchmark's own entry; none: nothing that is audited is labelled."""

DesignOfSides = Annotated[
    Design,
    Field(
        description="how the two sides came about: "
        + ", ".join(f"{design} ({meaning})" for design, meaning in MEANINGS.items())
    ),
]

# No text of a benchmark is longer than a long book.
Length = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


def _parse_words(value: object) -> object:
    if value is None:
        raise ValueError(f"must be a list of lengths, or {ANY}")
    return None if value == ANY else value


class ExtractionSettings(StrictSettings):
    """How the documents of a benchmark are searched for passages that the model gives (docs/extraction.md)."""

    prefix: Count = Field(default=PREFIX, description="tokens that the model is given")
    suffix: Annotated[int, Field(ge=2, strict=True)] = Field(default=SUFFIX, description="tokens that it has to give")
    stride: Annotated[str, StringConstraints(pattern=r"^(coarse-to-fine|tiled|chars:[1-9][0-9]*)$")] = Field(
        default=COARSE_TO_FINE, description="where windows begin: coarse-to-fine, tiled or chars:N"
    )
    characters: Count | None = Field(
        default=None, description="only so many characters of each document are searched, from its first on; None: all"
    )
    near_verbatim: Count | None = Field(
        default=None,
        description="tokens that may differ where each document's strongest passage is asked for nearly word for word; "
        "None: it is not",
    )
    grid: bool = Field(
        default=False,
        description="whether suffixes are also asked for at every setting of a grid (docs/extraction.md)",
    )
    price_per_million: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million tokens, for what the expected draws of a passage cost"
    )

    @property
    def lengths(self) -> WindowLengths:
        """How many tokens the model is given, and has to give."""
        return WindowLengths(self.prefix, self.suffix)

    @property
    def step(self) -> int | None:
        """Characters from one window to the next; None where the first windows are tiled."""
        return int(self.stride.removeprefix(CHARS)) if self.stride.startswith(CHARS) else None

    @property
    def recorded(self) -> dict[str, object]:
        """The settings as the ledger names them: those that are not asked for are left out."""
        return {name: value for name, value in self if value is not None and value is not False}

    def override(self, **given: object) -> Self:
        """Return these settings with those of the ``given`` ones that are not None; raise DataError for a bad one."""
        try:
            return self.model_validate({**dict(self), **{name: own for name, own in given.items() if own is not None}})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise DataError(f"{first['loc'][0]}: {first['msg']}") from error


def _parse_extraction(value: object) -> object:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class FamilySettings(StrictSettings):
    """What every family says, whatever builds it.

    ``words`` are the family's lengths; None means `any`: one benchmark, whose texts are as long as they are.
    """

    takes_any_length: ClassVar[bool] = False
    # Whether the design follows from how the texts are drawn, so that it need not be declared.
    design_follows: ClassVar[bool] = False
    # What the labels are known from, where there are any.
    labels_from: ClassVar[LabelSource] = "publisher"
    # Keys that hold a date, or words relative to today; and the day in the place of one that cannot be read, so
    # that the rest of the entry is looked at all the same.
    cutoffs: ClassVar[Mapping[str, date]] = {}
    # Keys that name a source, a control or the like.
    references: ClassVar[tuple[EntryReference, ...]] = (
        EntryReference(("combined",), "one-pass detector"),
        EntryReference(("corpora",), "corpus"),
    )
    # Fields that came later: left out of an entry's description at their default, so that digests stay.
    added: ClassVar[frozenset[str]] = frozenset(
        {"infilling_m", "dc_pdd_a", "combined", "on_request", "extraction", "title", "corpora", "design_stated_by"}
    )

    builder: str = Field(description="how the benchmark is built; the other keys depend on it")
    design: Design = Field(description="how the two sides came about; what may be claimed depends on it")
    design_stated_by: Text | None = Field(
        default=None, description="who states the design, in words; without it, the author of this file"
    )
    title: Text | None = Field(default=None, description="its name for people, in reports; None: the entry's own")
    description: Text = Field(description="what the benchmark is, for people; changing it rebuilds nothing")
    words: Annotated[
        Annotated[tuple[Length, ...], Field(min_length=1), Distinct] | None,
        BeforeValidator(_parse_words),
    ] = Field(
        description="lengths of a text in words, one benchmark each; or any: one benchmark of texts as long as they are"
    )
    unit: UnitName = Field(
        default="whitespace",
        description="what counts as a word: whitespace divides words; jieba, for Chinese, segments the text",
    )
    seed: Seed = Field(default=0, description="every random choice follows from it")
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.2,
        description="share of the groups that thresholds and detectors may be chosen on; the rest is evaluated",
    )
    near_duplicate_threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="Jaccard similarity of 5-word sequences from which on two texts are near-duplicates"
    )
    licence: Text | None = Field(default=None, description="of the texts")
    on_request: bool = Field(
        default=False, description="built and audited only where it is named: not by sensors, the weekly audit or all"
    )
    extraction: Annotated[ExtractionSettings | None, BeforeValidator(_parse_extraction)] = Field(
        default=None,
        description="true, or the keys below: an audit also searches whole documents for passages that the model gives",
    )
    corpora: tuple[Text, ...] = Field(
        default=(), description="corpora of references.yaml that an audit searches for its texts (docs/overlap.md)"
    )
    infilling_m: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None, description="future tokens of the Infilling Score; None: 1 up to 32 words, else 5"
    )
    dc_pdd_a: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="upper bound of DC-PDD; None: 0.01 (10 for BookMIA: Zhang et al. 2024)"
    )
    combined: Annotated[tuple[Text, ...], Field(min_length=2), Distinct] | None = Field(
        default=None, description="the detectors whose ranks are averaged; None: the default list of `combined`"
    )

    @property
    def source_names(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none if it is made of rows."""
        return ()

    @property
    def every_length_exact(self) -> bool:
        """Whether a text that has not exactly the benchmark's number of words would be wrong."""
        return True

    @property
    def cutoff_dates(self) -> tuple[date, date] | None:
        """The days before which members, and from which on non-members, are dated; None where dates decide nothing."""
        return None

    @property
    def is_balanced(self) -> bool:
        """Whether every collection has as many members as non-members."""
        return False

    @model_validator(mode="after")
    def _require_lengths(self) -> Self:
        if self.words is None and not self.takes_any_length:
            raise ValueError(f"words: {ANY} is not for this builder, which cuts its texts: list their lengths")
        return self


class DocumentsSettings(FamilySettings):
    """Drawn from the documents of sources that are fetched already."""

    references: ClassVar[tuple[EntryReference, ...]] = (EntryReference(("sources",), "source"),)

    sources: Annotated[tuple[Text, ...], Field(min_length=1), Distinct] = Field(
        description="sources (config/sources.yaml) whose documents the texts are taken from"
    )
    windows_per_document: Count = Field(description="at most so many texts are taken from one document")
    language: Language | None = Field(default=None, description="only documents in this language; None: all")

    @property
    def source_names(self) -> tuple[str, ...]:
        return self.sources


FILE_NAME = "benchmarks.yaml"

F = TypeVar("F", bound=FamilySettings)


def build_benchmark_name(family: str, words: int | None) -> str:
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
        return build_benchmark_name(self.family, self.words)

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
    def has_exact_length(self) -> bool:
        """Whether every text has exactly ``words`` words."""
        return self.words is not None and self.settings.every_length_exact

    @property
    def design(self) -> Design:
        """How the two sides came about; what may be claimed depends on it."""
        return self.settings.design

    @property
    def design_stated_by(self) -> str | None:
        """Who declares the design; None if it follows from how the texts are drawn here."""
        follows = self.settings.design_follows or self.design == "unlabelled"
        return None if follows else self.settings.design_stated_by or f"whoever wrote config/{FILE_NAME}"

    @property
    def label_source(self) -> LabelSource:
        """What its labels are known from."""
        return "none" if self.design == "unlabelled" else self.settings.labels_from

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources whose documents it is drawn from; none if it is made of rows."""
        return self.settings.source_names

    @property
    def control(self) -> str | None:
        """The control whose texts it is made of; its labels say something of that control's models alone."""
        return getattr(self.settings, "control", None)

    @property
    def has_relative_cutoff(self) -> bool:
        """Whether a cutoff is relative to today, so that it moves when the day is rolled."""
        return bool(self.relative)

    def described(self) -> dict[str, Any]:
        """The entry as JSON values, with the one length (null: any) in place of the family's list, and without fields
        that came later and say nothing."""
        entry = {"family": self.family, **self.settings.model_dump(mode="json"), "words": self.words}
        for name in self.settings.added:
            if getattr(self.settings, name) == type(self.settings).model_fields[name].default:
                del entry[name]
        return {**entry, "relative": dict(self.relative)} if self.relative else entry
