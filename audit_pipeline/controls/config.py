"""config/controls.yaml and studies.yaml: the models that are trained here on known texts, and studies of them.

What belongs here: the entries' fields and their validation. What does not: drawing texts (draw.py), training
(training.py), what a study does with its settings (study.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from audit_pipeline.benchmarks.config import UnitName
from audit_pipeline.contracts import digest
from audit_pipeline.errors import ConfigError
from audit_pipeline.paths import config_dir
from audit_pipeline.yaml_files import one_line, read_entries

FILE_NAME = "controls.yaml"
STUDIES_FILE_NAME = "studies.yaml"

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Positive = Annotated[float, Field(gt=0)]


class Architecture(BaseModel):
    """A model that is trained from nothing. Sizes are those of transformers' configurations of the family."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["llama", "gpt_neox"] = "llama"
    hidden_size: AtLeastOne = 128
    layers: AtLeastOne = 4
    heads: AtLeastOne = 4
    intermediate_size: AtLeastOne = 384
    context: AtLeastOne = 512
    vocabulary: Annotated[int, Field(ge=300, strict=True)] = 4096

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.hidden_size % (2 * self.heads):
            raise ValueError("hidden_size must be a multiple of twice the heads (rotary positions turn pairs)")
        return self


class ControlEntry(BaseModel):
    """One control: its corpus, how its texts are drawn, and how its two models are trained."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: Text
    sources: Annotated[tuple[Text, ...], Field(min_length=1)]
    words: AtLeastOne = 64
    unit: UnitName = "whitespace"
    randomise: Literal["window", "document"] = "window"
    members: AtLeastOne
    held_out: AtLeastOne
    surrounding: Count = 0
    occurrences: Positive = 1.0
    draw: Literal["fixed", "poisson"] = "fixed"
    epochs: AtLeastOne = 1
    learning_rate: Positive = 3e-3
    batch_size: AtLeastOne = 16
    base: Text | None = Field(
        default=None, description="a model to train on from; None: the architecture, from nothing"
    )
    architecture: Architecture = Architecture()
    seed: Annotated[int, Field(strict=True)]

    @model_validator(mode="after")
    def _whole_occurrences(self) -> Self:
        if self.draw == "fixed" and self.occurrences != int(self.occurrences):
            raise ValueError("occurrences: a fixed number is a whole number; draw: poisson takes a mean")
        if len(set(self.sources)) != len(self.sources):
            raise ValueError("sources: a source is named twice")
        return self

    @property
    def settings_digest(self) -> str:
        """Digest of all that decides the texts and the weights, but for the documents themselves."""
        return digest(self.model_dump(mode="json", exclude={"description"}))

    def changed(self, **settings: object) -> ControlEntry:
        """The entry with other settings, validated again; ``hidden_size`` and the like go to its architecture.

        Raises ConfigError for a setting that there is not, or a value that it may not have.
        """
        inner = {name: value for name, value in settings.items() if name in Architecture.model_fields}
        outer = {name: value for name, value in settings.items() if name not in inner}
        fields = {**self.model_dump(), **outer}
        fields["architecture"] = {**self.architecture.model_dump(), **inner}
        try:
            return ControlEntry.model_validate(fields)
        except ValidationError as error:
            raise ConfigError(f"control {self.name}: {_first_problem(error)}") from error


class StudyEntry(BaseModel):
    """One study: a control trained again with one setting at each of its values, the others as they are, and seeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: Text
    control: Name
    vary: Annotated[dict[Text, tuple[float | int | str, ...]], Field(min_length=1)]
    seeds: AtLeastOne = 1
    detectors: Annotated[tuple[Text, ...], Field(min_length=1)] = ("loss", "min_k", "min_k_plus_plus")


def load_controls(folder: Path | None = None) -> Mapping[str, ControlEntry]:
    """The controls of controls.yaml by name, in the file's order; none where there is no such file.

    Raises ConfigError naming the file, the entry and the key that is wrong.
    """
    path = (folder or config_dir()) / FILE_NAME
    if not path.exists():
        return {}
    entries = read_entries(path, "controls", "control", "it says which models are trained here")
    return {name: _entry(path, "control", name, fields) for name, fields in entries.items()}


def load_studies(folder: Path | None = None) -> Mapping[str, StudyEntry]:
    """The studies of studies.yaml by name, in the file's order; as :func:`load_controls`.

    Raises ConfigError, too, for a study of a control that there is not, or of a setting that it does not have.
    """
    path = (folder or config_dir()) / STUDIES_FILE_NAME
    if not path.exists():
        return {}
    controls = load_controls(folder)
    entries = read_entries(path, "studies", "study", "it says what is varied")
    studies: dict[str, StudyEntry] = {}
    for name, fields in entries.items():
        study = _study(path, name, fields)
        control = control_named(study.control, controls)
        for setting, values in study.vary.items():
            for value in values:
                control.changed(**{setting: value})
        studies[name] = study
    return studies


def control_named(name: str, controls: Mapping[str, ControlEntry]) -> ControlEntry:
    """The control of that name; raises ConfigError, with the nearest names, where there is none."""
    if name in controls:
        return controls[name]
    near = difflib.get_close_matches(name, controls, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"configured: {', '.join(controls) or 'none'}"
    raise ConfigError(f"there is no control '{name}' in config/{FILE_NAME}; {hint}")


def study_named(name: str, studies: Mapping[str, StudyEntry]) -> StudyEntry:
    """The study of that name; raises ConfigError where there is none."""
    if name in studies:
        return studies[name]
    known = ", ".join(studies) or "none"
    raise ConfigError(f"there is no study '{name}' in config/{STUDIES_FILE_NAME}; configured: {known}")


def sources_of(controls: Sequence[ControlEntry]) -> list[str]:
    """The sources whose documents ``controls`` are drawn from, each once."""
    return list(dict.fromkeys(source for control in controls for source in control.sources))


def _entry(path: Path, what: str, name: str, fields: object) -> ControlEntry:
    try:
        return ControlEntry.model_validate({**_fields(path, what, name, fields), "name": name})
    except ValidationError as error:
        raise ConfigError(f"{path}: {what} {name}: {_first_problem(error)}") from error


def _study(path: Path, name: str, fields: object) -> StudyEntry:
    try:
        return StudyEntry.model_validate({**_fields(path, "study", name, fields), "name": name})
    except ValidationError as error:
        raise ConfigError(f"{path}: study {name}: {_first_problem(error)}") from error


def _fields(path: Path, what: str, name: str, fields: object) -> dict[Any, Any]:
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: {what} {name}: the entry holds no fields")
    return fields


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{where}'; take it out or correct its spelling"
    if problem["type"] == "missing":
        return f"key '{where}' is missing"
    message = one_line(ValueError(problem["msg"].removeprefix("Value error, ")))
    return f"{where}: {message}" if where else message
