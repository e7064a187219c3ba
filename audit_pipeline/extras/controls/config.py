"""The files config/controls.yaml and studies.yaml: models that are trained on known texts, and studies of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from audit_pipeline.benchmarks.settings import UnitName
from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.problems import Fault, InvalidEntryError
from audit_pipeline.config.validation import Seed, StrictSettings, Text, validate_as
from audit_pipeline.errors import ConfigError
from audit_pipeline.tables import digest

FILE_NAME = "controls.yaml"
STUDIES_FILE_NAME = "studies.yaml"

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0, le=1e9)]


# The discriminator distinguishes a number from a list before validation. Otherwise pydantic would report a mistake
# twice: once for a number, and once for a list.
Occurrences = Annotated[
    Annotated[Positive, Tag("one")] | Annotated[tuple[AtLeastOne, ...], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "one"),
]

# For larger means, exp(-mean) underflows, and the draws would follow another distribution.
_MAX_POISSON_MEAN = 700


class Architecture(StrictSettings):
    """The architecture of a model that is trained from scratch, a small Llama or GPT-NeoX."""

    family: Literal["llama", "gpt_neox"] = Field(default="llama", description="family of the architecture")
    hidden_size: AtLeastOne = Field(
        default=128, description="width of a layer; must be a multiple of twice the number of heads"
    )
    layers: AtLeastOne = Field(default=4, description="number of layers")
    heads: AtLeastOne = Field(default=4, description="number of attention heads per layer")
    intermediate_size: AtLeastOne = Field(default=384, description="width inside a layer's feed-forward part")
    context: AtLeastOne = Field(default=512, description="length of the context in tokens")
    vocabulary: Annotated[int, Field(ge=300, strict=True)] = Field(
        default=4096, description="maximum size of the tokenizer's vocabulary"
    )

    @model_validator(mode="after")
    def _require_fitting_heads(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size is {self.hidden_size}, but must be a multiple of 2 × heads ({2 * self.heads}), because "
                "the position embeddings (RoPE) rotate pairs of values within each head"
            )
        return self

    @property
    def parameter_count(self) -> int:
        """Return the number of parameters without norms, but with position embeddings."""
        layer = 4 * self.hidden_size**2 + 3 * self.hidden_size * self.intermediate_size
        return self.hidden_size * (self.vocabulary + self.context) + self.layers * layer


class ControlEntry(StrictSettings):
    """The settings of a control: its corpus, the draw of its texts, and the training of its two models."""

    name: Name
    description: Text = Field(description="description of the control for readers")
    sources: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        description="sources (config/sources.yaml) whose documents are the corpus"
    )
    words: AtLeastOne = Field(default=64, description="length of a text in words")
    unit: UnitName = Field(
        default="whitespace",
        description=(
            "unit of length: whitespace (words between white space) or jieba (words that the package jieba finds, for "
            "Chinese)"
        ),
    )
    randomise: Literal["window", "document"] = Field(
        default="window",
        description="unit of the draw: window (each text has its own role) or document (all its texts share a role)",
    )
    members: AtLeastOne = Field(description="number of texts that the exposed model is trained on")
    held_out: AtLeastOne = Field(description="number of texts that neither model is trained on")
    surrounding: Count = Field(
        default=0, description="number of other texts that both models are trained on, once per epoch"
    )
    occurrences: Occurrences = Field(
        default=1.0,
        description=(
            "number of times that the exposed model is trained on a member per epoch; if it is a list, the members are "
            "divided among its numbers at random"
        ),
    )
    draw: Literal["fixed", "poisson"] = Field(
        default="fixed",
        description=(
            "fixed: each member occurs as often as occurrences states; poisson: the number of occurrences is random, "
            "and the value of occurrences is its mean (a member with 0 occurrences becomes held out)"
        ),
    )
    epochs: AtLeastOne = Field(default=1, description="number of passes over all texts")
    learning_rate: Positive = Field(default=3e-3, description="constant learning rate of AdamW")
    batch_size: AtLeastOne = Field(default=16, description="number of texts per step")
    base: Text | None = Field(
        default=None, description="model to start from; None: train the architecture from scratch"
    )
    architecture: Architecture = Field(default=Architecture(), description="architecture to train if there is no base")
    seed: Seed = Field(default=0, description="seed of every random choice")

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if isinstance(self.occurrences, tuple):
            if self.draw == "poisson":
                raise ValueError("occurrences: a list requires draw: fixed, because draw: poisson takes one mean")
            if len(set(self.occurrences)) != len(self.occurrences):
                raise ValueError(
                    f"occurrences: {list(self.occurrences)} contains a number twice; remove the repetition"
                )
            if self.members < len(self.occurrences):
                raise ValueError(
                    f"members: {self.members} member(s) cannot be divided among the {len(self.occurrences)} numbers of "
                    f"occurrences; set members to at least {len(self.occurrences)}"
                )
        elif self.draw == "fixed" and self.occurrences != int(self.occurrences):
            raise ValueError(
                f"occurrences: {self.occurrences:g} requires draw: poisson, because draw: fixed takes a whole number"
            )
        elif self.draw == "poisson" and self.occurrences > _MAX_POISSON_MEAN:
            raise ValueError(
                f"occurrences: {self.occurrences:g} is too large; with draw: poisson, the mean is at most "
                f"{_MAX_POISSON_MEAN}"
            )
        if len(set(self.sources)) != len(self.sources):
            raise ValueError(f"sources: {', '.join(self.sources)} contains a source twice; remove the repetition")
        return self

    @property
    def settings_digest(self) -> str:
        """Return the digest of everything that decides the texts and the weights, except the documents."""
        return digest(self.model_dump(mode="json", exclude={"description"}))

    def with_settings(self, **settings: object) -> ControlEntry:
        """Return a validated copy of the entry with other settings.

        Args:
            settings: Settings of the entry or of its architecture, such as ``hidden_size``.

        Raises:
            ConfigError: If a setting is unknown or a value is invalid.
        """
        fields = self.model_dump()
        architecture = self.architecture.model_dump()
        for name, value in settings.items():
            if name in Architecture.model_fields:
                architecture[name] = value
            else:
                fields[name] = value
        fields["architecture"] = architecture
        try:
            return validate_as(ControlEntry, fields)
        except InvalidEntryError as error:
            raise ConfigError(f"control {self.name}: {error}") from error


class StudyEntry(StrictSettings):
    """The settings of a study, which trains a control again for each value of a setting and for each seed."""

    name: Name
    description: Text = Field(description="description of the study for readers")
    control: Name = Field(description="control to train again")
    vary: Annotated[dict[Text, tuple[float | int | str, ...]], Field(min_length=1)] = Field(
        description="settings of the control to vary, each with a list of values"
    )
    seeds: AtLeastOne = Field(default=1, description="number of trainings per value, each with another seed")
    detectors: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        default=("loss", "min_k", "min_k_plus_plus"), description="detectors to compare"
    )


FILE = EntryFile(
    FILE_NAME,
    "controls",
    "control",
    "it lists the models that are trained here",
    lambda name, fields, folder: validate_as(ControlEntry, {**fields, "name": name}),
    is_optional=True,
    references=(EntryReference(("sources",), "source"), EntryReference(("base",), "model", allow_external=True)),
    dimension="control",
)


def _find_invalid_variations(
    studies: Entries[StudyEntry], files: Mapping[str, object]
) -> Mapping[str, Sequence[Fault]]:
    """Return the faults of each study: settings that its control lacks, and values that the control does not accept."""
    faults: dict[str, list[Fault]] = defaultdict(list)
    controls = files[FILE_NAME]
    if not isinstance(controls, Entries):
        return faults
    for name, study in studies.items():
        control = controls.get(study.control)
        if control is None:
            continue
        for setting, values in study.vary.items():
            for number, value in enumerate(values):
                try:
                    control.with_settings(**{setting: value})
                except ConfigError as error:
                    faults[name].append(Fault(("vary", setting, number), f"vary.{setting}: {value}: {error}"))
    return faults


STUDIES_FILE = EntryFile(
    STUDIES_FILE_NAME,
    "studies",
    "study",
    "it lists the settings that are varied",
    lambda name, fields, folder: validate_as(StudyEntry, {**fields, "name": name}),
    is_optional=True,
    references=(EntryReference(("control",), "control"), EntryReference(("detectors",), "detector")),
    dimension="study",
    find_conflicts=_find_invalid_variations,
)


def load_controls(folder: Path | None = None) -> Entries[ControlEntry]:
    """Return the controls of controls.yaml, or no controls if the file is missing.

    Raises:
        ConfigError: If the file is unreadable. The message contains its path.
    """
    return FILE.load(folder)


def load_studies(folder: Path | None = None) -> Entries[StudyEntry]:
    """Return the studies of studies.yaml, or no studies if the file is missing.

    Raises:
        ConfigError: If the file is unreadable. The message contains its path.
    """
    return STUDIES_FILE.load(folder)


def list_control_sources(controls: Sequence[ControlEntry]) -> list[str]:
    """Return the sources of the controls' documents without duplicates."""
    return list(dict.fromkeys(source for control in controls for source in control.sources))
