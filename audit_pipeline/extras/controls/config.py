"""config/controls.yaml and studies.yaml: the models that are trained here on known texts, and studies of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from audit_pipeline.benchmarks.words import UnitName
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


# Distinguished first, so that a mistake is reported for one form only.
Occurrences = Annotated[
    Annotated[Positive, Tag("one")] | Annotated[tuple[AtLeastOne, ...], Field(min_length=1), Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list | tuple) else "one"),
]

# Beyond it e to the minus mean is no number of the machine's, and the draws would be of another distribution.
_LARGEST_MEAN = 700


class Architecture(StrictSettings):
    """A model that is trained from nothing. Sizes are those of transformers' configurations of the family."""

    family: Literal["llama", "gpt_neox"] = Field(default="llama", description="whose architecture it is")
    hidden_size: AtLeastOne = Field(default=128, description="width of a layer; a multiple of twice the heads")
    layers: AtLeastOne = Field(default=4, description="how many layers")
    heads: AtLeastOne = Field(default=4, description="attention heads of a layer")
    intermediate_size: AtLeastOne = Field(default=384, description="width inside a layer's feed-forward part")
    context: AtLeastOne = Field(default=512, description="tokens that it reads at once")
    vocabulary: Annotated[int, Field(ge=300, strict=True)] = Field(
        default=4096, description="tokens that its tokenizer has"
    )

    @model_validator(mode="after")
    def _require_fitting_heads(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError("hidden_size must be a multiple of twice the heads (rotary positions turn pairs)")
        return self

    @property
    def parameter_count(self) -> int:
        """Return the number of parameters without those of norms; the places of the context are counted as well."""
        layer = 4 * self.hidden_size**2 + 3 * self.hidden_size * self.intermediate_size
        return self.hidden_size * (self.vocabulary + self.context) + self.layers * layer


class ControlEntry(StrictSettings):
    """One control: its corpus, how its texts are drawn, and how its two models are trained."""

    name: Name
    description: Text = Field(description="what the control is, for people")
    sources: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        description="sources (config/sources.yaml) whose documents are the corpus"
    )
    words: AtLeastOne = Field(default=64, description="length of a text")
    unit: UnitName = Field(
        default="whitespace",
        description="what counts as a word: whitespace divides words; jieba, for Chinese, segments the text",
    )
    randomise: Literal["window", "document"] = Field(
        default="window",
        description="window: each text's role is drawn by itself; document: one role for a document with all its texts",
    )
    members: AtLeastOne = Field(description="how many texts the model is trained on")
    held_out: AtLeastOne = Field(description="how many texts are kept from both models")
    surrounding: Count = Field(default=0, description="how many other texts both models are trained on, once per epoch")
    occurrences: Occurrences = Field(
        default=1.0, description="how often a member is trained on in an epoch; of a list, chance gives each member one"
    )
    draw: Literal["fixed", "poisson"] = Field(
        default="fixed",
        description="fixed: occurrences is that number; poisson: it is the mean of a random number (0 times: held out)",
    )
    epochs: AtLeastOne = Field(default=1, description="how often the model is trained on all its texts")
    learning_rate: Positive = Field(default=3e-3, description="of AdamW, constant")
    batch_size: AtLeastOne = Field(default=16, description="texts of one step")
    base: Text | None = Field(
        default=None, description="a model to train on from; None: the architecture, from nothing"
    )
    architecture: Architecture = Field(
        default=Architecture(), description="the model that is trained where there is no base"
    )
    seed: Seed = Field(default=0, description="every random choice follows from it")

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if isinstance(self.occurrences, tuple):
            if self.draw == "poisson":
                raise ValueError("occurrences: several numbers are fixed; draw: poisson takes one mean")
            if len(set(self.occurrences)) != len(self.occurrences):
                raise ValueError("occurrences: a number occurs twice")
            if self.members < len(self.occurrences):
                raise ValueError(
                    f"members: {self.members} cannot be divided among the {len(self.occurrences)} numbers of "
                    "occurrences; ask for one each at least"
                )
        elif self.draw == "fixed" and self.occurrences != int(self.occurrences):
            raise ValueError("occurrences: a fixed number is a whole number; draw: poisson takes a mean")
        elif self.draw == "poisson" and self.occurrences > _LARGEST_MEAN:
            raise ValueError(f"occurrences: the mean of a poisson draw is at most {_LARGEST_MEAN}")
        if len(set(self.sources)) != len(self.sources):
            raise ValueError("sources: a source is named twice")
        return self

    @property
    def settings_digest(self) -> str:
        """Digest of all that decides the texts and the weights, but for the documents themselves."""
        return digest(self.model_dump(mode="json", exclude={"description"}))

    def with_settings(self, **settings: object) -> ControlEntry:
        """Return the entry with other settings, validated again; ``hidden_size`` and the like go to its architecture.

        Raises ConfigError for a setting that there is not, or a value that it may not have.
        """
        inner = {name: value for name, value in settings.items() if name in Architecture.model_fields}
        outer = {name: value for name, value in settings.items() if name not in inner}
        fields = {**self.model_dump(), **outer}
        fields["architecture"] = {**self.architecture.model_dump(), **inner}
        try:
            return validate_as(ControlEntry, fields)
        except InvalidEntryError as error:
            raise ConfigError(f"control {self.name}: {error}") from error


class StudyEntry(StrictSettings):
    """One study: a control trained again with one setting at each of its values, the others as they are, and seeds."""

    name: Name
    description: Text = Field(description="what the study is, for people")
    control: Name = Field(description="the control that is trained again")
    vary: Annotated[dict[Text, tuple[float | int | str, ...]], Field(min_length=1)] = Field(
        description="settings of the control, each with the values that it is given in turn"
    )
    seeds: AtLeastOne = Field(default=1, description="how many times each is trained, with another seed")
    detectors: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        default=("loss", "min_k", "min_k_plus_plus"), description="the detectors whose results are compared"
    )


FILE = EntryFile(
    FILE_NAME,
    "controls",
    "control",
    "it says which models are trained here",
    lambda name, fields, folder: validate_as(ControlEntry, {**fields, "name": name}),
    is_optional=True,
    references=(EntryReference(("sources",), "source"), EntryReference(("base",), "model", allow_external=True)),
    dimension="control",
)


def _find_invalid_variations(
    studies: Entries[StudyEntry], files: Mapping[str, object]
) -> Mapping[str, Sequence[Fault]]:
    """What a study varies and its control does not have, or not with that value; by study."""
    found: dict[str, list[Fault]] = defaultdict(list)
    controls = files[FILE_NAME]
    for name, study in studies.items():
        control = controls.get(study.control) if isinstance(controls, Entries) else None
        if control is None:
            continue
        variations = [(key, place, value) for key, values in study.vary.items() for place, value in enumerate(values)]
        for setting, place, value in variations:
            try:
                control.with_settings(**{setting: value})
            except ConfigError as error:
                found[name].append(Fault(("vary", setting, place), f"vary.{setting}: {value}: {error}"))
    return found


STUDIES_FILE = EntryFile(
    STUDIES_FILE_NAME,
    "studies",
    "study",
    "it says what is varied",
    lambda name, fields, folder: validate_as(StudyEntry, {**fields, "name": name}),
    is_optional=True,
    references=(EntryReference(("control",), "control"), EntryReference(("detectors",), "detector")),
    dimension="study",
    find_conflicts=_find_invalid_variations,
)


def load_controls(folder: Path | None = None) -> Entries[ControlEntry]:
    """Return the controls of controls.yaml; none where there is no such file.

    Raises ConfigError, naming the file, where none of it can be read.
    """
    return FILE.load(folder)


def load_studies(folder: Path | None = None) -> Entries[StudyEntry]:
    """Return the studies of studies.yaml, as :func:`load_controls`."""
    return STUDIES_FILE.load(folder)


def list_control_sources(controls: Sequence[ControlEntry]) -> list[str]:
    """Return the sources whose documents ``controls`` are drawn from, each once."""
    return list(dict.fromkeys(source for control in controls for source in control.sources))
