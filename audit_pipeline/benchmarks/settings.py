"""The settings of an entry of config/benchmarks.yaml, and one benchmark: such an entry at one length in words.

The word units define what counts as a word for these lengths.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from audit_pipeline.config.entries import EntryReference
from audit_pipeline.config.validation import Distinct, Language, Seed, StrictSettings, Text
from audit_pipeline.errors import DataError
from audit_pipeline.extras.extraction import CHARS, COARSE_TO_FINE, PREFIX, SUFFIX, WindowLengths

UnitName = Literal["whitespace", "jieba"]

_LATIN_END = re.compile(r"[A-Za-z0-9]$")
_LATIN_START = re.compile(r"^[A-Za-z0-9]")
# jieba splits texts at all characters except these. Its time grows with the square of the length of an unbroken
# sequence of them. So long sequences are cut into pieces. They do not occur in usual texts.
_LONG_RUN = re.compile(r"[\u4E00-\u9FD5a-zA-Z0-9+#&._%-]{2000}")


@dataclass(frozen=True)
class WordUnit:
    """A definition of a word: how a text is split into words, and how words are joined to a text.

    Attributes:
        name: The name in config/benchmarks.yaml.
        split: A function that returns the words of a text. No word is blank.
        join: A function that joins words into a text.
    """

    name: UnitName
    split: Callable[[str], list[str]]
    join: Callable[[Sequence[str]], str]


def get_word_unit(name: UnitName) -> WordUnit:
    """Return the word unit with this name.

    `whitespace` splits at white space and joins with single spaces, as in WikiMIA. Line breaks are lost on purpose:
    they are no evidence of membership, so classifiers must not see them.
    `jieba` segments Chinese text. It joins words without spaces, except between two Latin words.
    """
    if name == "whitespace":
        return WordUnit(name, str.split, " ".join)
    return WordUnit(name, _load_jieba_splitter(), _join_chinese)


def _load_jieba_splitter() -> Callable[[str], list[str]]:
    # The import is local because it takes a second.
    import jieba  # noqa: PLC0415

    # By default, jieba prints the loading time of its dictionary to standard error.
    jieba.setLogLevel(logging.WARNING)

    def split(text: str) -> list[str]:
        ends = [run.end() for run in _LONG_RUN.finditer(text)]
        words = []
        for begin, end in pairwise([0, *ends, len(text)]):
            words += jieba.lcut(text[begin:end])
        return list(filter(str.strip, words))

    return split


def _join_chinese(words: Sequence[str]) -> str:
    pieces: list[str] = []
    for word in words:
        if pieces and _LATIN_END.search(pieces[-1]) and _LATIN_START.search(word):
            pieces.append(" ")
        pieces.append(word)
    return "".join(pieces)


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
"""The origin of the labels.

Labels come from dates of documents, the publisher of the rows, a search of a complete corpus, the training of a control
on this machine, or the benchmark's configuration. The value is `none` if no audited text is labelled.
"""

_DESIGNS = ", ".join(f"{design} ({meaning})" for design, meaning in MEANINGS.items())

DesignOfSides = Annotated[Design, Field(description=f"how members and non-members were obtained: {_DESIGNS}")]

# The limit exceeds the length of a long book.
Length = Annotated[int, Field(ge=1, le=1_000_000, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]


def _parse_words(value: object) -> object:
    if value is None:
        raise ValueError(f"must be a list of lengths, or {ANY}")
    return None if value == ANY else value


class ExtractionSettings(StrictSettings):
    """Settings of the search for passages that the model reproduces (docs/extraction.md)."""

    prefix: Count = Field(default=PREFIX, description="number of tokens in the prompt")
    suffix: Annotated[int, Field(ge=2, strict=True)] = Field(
        default=SUFFIX, description="number of tokens that the model must reproduce after the prompt"
    )
    stride: Annotated[str, StringConstraints(pattern=r"^(coarse-to-fine|tiled|chars:[1-9][0-9]*)$")] = Field(
        default=COARSE_TO_FINE,
        description="positions of the windows: coarse-to-fine, tiled (one after the other) or chars:N (every N "
        "characters)",
    )
    characters: Count | None = Field(
        default=None, description="number of characters to search at the start of each document; None: all"
    )
    near_verbatim: Count | None = Field(
        default=None,
        description="number of tokens that may differ in a near-verbatim test of each document's strongest passage; "
        "None: no such test",
    )
    grid: bool = Field(
        default=False,
        description="true: also compute the suffixes' probabilities at every setting of a grid (docs/extraction.md)",
    )
    price_per_million: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million tokens, to compute the cost of drawing a passage; None: no cost"
    )

    @property
    def lengths(self) -> WindowLengths:
        """Return the numbers of prompt tokens and suffix tokens."""
        return WindowLengths(self.prefix, self.suffix)

    @property
    def step(self) -> int | None:
        """Return the number of characters from one window to the next, or None if ``stride`` is not ``chars:N``."""
        return int(self.stride.removeprefix(CHARS)) if self.stride.startswith(CHARS) else None

    @property
    def recorded(self) -> dict[str, object]:
        """Return the settings for the ledger, without settings that are unset or false."""
        return {name: value for name, value in self if value is not None and value is not False}

    def override(self, **overrides: object) -> Self:
        """Return a copy in which the ``overrides`` that are not None replace settings.

        Raises:
            DataError: If a value is not valid.
        """
        changed = {name: value for name, value in overrides.items() if value is not None}
        try:
            return self.model_validate({**dict(self), **changed})
        except ValidationError as error:
            first_error = error.errors(include_url=False)[0]
            raise DataError(f"{first_error['loc'][0]}: {first_error['msg']}") from error


def _convert_extraction_flag(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else None
    return value


class FamilySettings(StrictSettings):
    """The settings of every family, regardless of its builder."""

    takes_any_length: ClassVar[bool] = False
    # True if the design follows from the builder, so that no person has to state it.
    design_follows: ClassVar[bool] = False
    # The origin of the labels, if there are labels.
    labels_from: ClassVar[LabelSource] = "publisher"
    # Keys of cutoffs, and their placeholders. A cutoff is a date or words such as "90 days before today". The
    # placeholder replaces an unreadable cutoff, so that the rest of the entry is still checked.
    cutoffs: ClassVar[Mapping[str, date]] = {}
    # Keys that refer to entries of other files, such as sources and controls.
    references: ClassVar[tuple[EntryReference, ...]] = (
        EntryReference(("combined",), "one-pass detector"),
        EntryReference(("corpora",), "corpus"),
    )
    # Fields that were added later. ``describe_entry`` omits them at their default, so that digests do not change.
    added: ClassVar[frozenset[str]] = frozenset(
        {"infilling_m", "dc_pdd_a", "combined", "on_request", "extraction", "title", "corpora", "design_stated_by"}
    )

    builder: str = Field(description="name of the builder, which determines the other keys")
    design: Design = Field(
        description="how members and non-members were obtained; the strongest possible claim depends on it"
    )
    design_stated_by: Text | None = Field(
        default=None, description="person or paper that states the design; None: the author of this file"
    )
    title: Text | None = Field(default=None, description="name of the benchmark in reports; None: the entry's name")
    description: Text = Field(description="description for readers; a change does not rebuild the benchmark")
    words: Annotated[
        Annotated[tuple[Length, ...], Field(min_length=1), Distinct] | None,
        BeforeValidator(_parse_words),
    ] = Field(
        description="text lengths in words, one benchmark per length; or any: one benchmark of texts of any length"
    )
    unit: UnitName = Field(
        default="whitespace",
        description="definition of a word: whitespace splits at white space; jieba segments Chinese text",
    )
    seed: Seed = Field(default=0, description="seed of every random choice; another seed draws other examples")
    calibration_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.2,
        description="share of the texts, in whole groups, that thresholds and detectors may be chosen on; results are "
        "computed from the other texts",
    )
    near_duplicate_threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.5, description="minimum Jaccard similarity of the 5-word sequences of two near-duplicates"
    )
    licence: Text | None = Field(default=None, description="licence of the texts; None: not stated")
    on_request: bool = Field(
        default=False,
        description="true: build and audit it only if a command names it, not by sensors, the weekly audit or all",
    )
    extraction: Annotated[ExtractionSettings | None, BeforeValidator(_convert_extraction_flag)] = Field(
        default=None,
        description="true: every audit also searches the documents for passages that the model reproduces, with the "
        "default settings; or the keys below; None: no search",
    )
    corpora: tuple[Text, ...] = Field(
        default=(), description="corpora of references.yaml in which an audit searches for the texts (docs/overlap.md)"
    )
    infilling_m: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None,
        description="number of future tokens of the Infilling Score; None: 1 for texts of up to 32 words, 5 for "
        "longer texts",
    )
    dc_pdd_a: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="upper bound of a token's calibrated probability in DC-PDD; None: 0.01 (10 for BookMIA: Zhang et "
        "al. 2024)",
    )
    combined: Annotated[tuple[Text, ...], Field(min_length=2), Distinct] | None = Field(
        default=None,
        description="detectors whose ranks the detector `combined` averages; None: the default list of `combined`",
    )

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the names of the documents' sources. Benchmarks that are built from labelled rows have none."""
        return ()

    @property
    def requires_exact_length(self) -> bool:
        """Return True if every text must have exactly the benchmark's number of words."""
        return True

    @property
    def cutoff_dates(self) -> tuple[date, date] | None:
        """Return the cutoffs, or None if dates do not decide the side.

        Members are dated before the first day. Non-members are dated on the second day or later.
        """
        return None

    @property
    def is_balanced(self) -> bool:
        """Return True if every collection has as many members as non-members."""
        return False

    @model_validator(mode="after")
    def _require_lengths(self) -> Self:
        if self.words is None and not self.takes_any_length:
            raise ValueError(
                f"words: this builder cuts texts, so it does not accept {ANY}. List the lengths of the texts."
            )
        return self


class DocumentsSettings(FamilySettings):
    """Settings of benchmarks that are drawn from the documents of fetched sources."""

    references: ClassVar[tuple[EntryReference, ...]] = (EntryReference(("sources",), "source"),)

    sources: Annotated[tuple[Text, ...], Field(min_length=1), Distinct] = Field(
        description="sources (config/sources.yaml) of the documents"
    )
    windows_per_document: Count = Field(description="maximum number of texts per document")
    language: Language | None = Field(
        default=None, description="use only documents in this language (ISO 639-1); None: all languages"
    )

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the sources of the documents."""
        return self.sources


FILE_NAME = "benchmarks.yaml"

F = TypeVar("F", bound=FamilySettings)


def build_benchmark_name(family: str, words: int | None) -> str:
    """Return the name of a family's benchmark of this length. ``words`` is None for texts of any length."""
    return family if words is None else f"{family}_{words}"


@dataclass(frozen=True)
class BenchmarkSpec:
    """One benchmark: a family's settings at one length in words.

    Attributes:
        family: The name of the family's entry.
        words: The length, or None for texts of any length. The family is then one benchmark with the family's name.
        settings: The settings of the family. Cutoffs are dates.
        relative: The relative cutoffs in words, such as "90 days before today", by key.
    """

    family: str
    words: int | None
    settings: FamilySettings
    relative: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Return the name of the benchmark. It is also its partition in Dagster."""
        return build_benchmark_name(self.family, self.words)

    @property
    def title(self) -> str | None:
        """Return the title for reports, or None if the entry has none.

        The title includes the length if the family has several lengths.
        """
        lengths = self.settings.words
        if self.settings.title is None or lengths is None or len(lengths) == 1:
            return self.settings.title
        return f"{self.settings.title} ({self.words} words a text)"

    def require_settings(self, kind: type[F]) -> F:
        """Return the settings, typed as the class ``kind``.

        Raises:
            TypeError: If the settings have another class.
        """
        if not isinstance(self.settings, kind):
            raise TypeError(f"the settings of {self.name} are {type(self.settings).__name__}, not {kind.__name__}")
        return self.settings

    @property
    def length(self) -> int:
        """Return the length in words.

        Raises:
            TypeError: If the texts have any length. Builders that cut texts do not accept such entries.
        """
        if self.words is None:
            raise TypeError(f"the texts of {self.name} have any length; this builder needs one length")
        return self.words

    @property
    def has_exact_length(self) -> bool:
        """Return True if every text has exactly ``words`` words."""
        return self.words is not None and self.settings.requires_exact_length

    @property
    def design(self) -> Design:
        """Return the way in which members and non-members were obtained. The strongest possible claim depends on it."""
        return self.settings.design

    @property
    def design_stated_by(self) -> str | None:
        """Return who states the design, or None if the builder determines it."""
        if self.settings.design_follows or self.design == "unlabelled":
            return None
        return self.settings.design_stated_by or f"whoever wrote config/{FILE_NAME}"

    @property
    def label_source(self) -> LabelSource:
        """Return the origin of the labels."""
        return "none" if self.design == "unlabelled" else self.settings.labels_from

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the documents' sources. Benchmarks that are built from labelled rows have none."""
        return self.settings.source_names

    @property
    def control(self) -> str | None:
        """Return the control that the texts belong to, or None. The labels are valid only for that control's models."""
        return getattr(self.settings, "control", None)

    @property
    def has_relative_cutoff(self) -> bool:
        """Return True if a cutoff is relative to the day that counts as today, and so moves with that day."""
        return bool(self.relative)

    def describe_entry(self) -> dict[str, Any]:
        """Return the entry as JSON values.

        ``words`` is the benchmark's length, or null for any length. Fields that were added in later versions of the
        program (``FamilySettings.added``) are omitted at their default.
        """
        entry = {"family": self.family, **self.settings.model_dump(mode="json"), "words": self.words}
        for name in self.settings.added:
            if getattr(self.settings, name) == type(self.settings).model_fields[name].default:
                del entry[name]
        if self.relative:
            entry["relative"] = dict(self.relative)
        return entry
