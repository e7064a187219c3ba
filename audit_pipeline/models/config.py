"""config/models.yaml: which models are audited and under which conventions.

What belongs here: the entries' fields, their validation, and turning what a user typed (a name, a hub id, a path)
into an entry. What does not: finding files (locate.py), reading them (load.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit_pipeline.controls.roles import Role
from audit_pipeline.errors import ConfigError, ModelError
from audit_pipeline.paths import config_dir
from audit_pipeline.yaml_files import one_line, read_entries

FILE_NAME = "models.yaml"

Dtype = Literal["float32", "bfloat16", "float16"]
StartTokenPolicy = Literal["always", "tokenizer"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class PackageFile(BaseModel):
    """A model file that an installed Python package carries; the package is never imported."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    distribution: str
    file: str = Field(description="name of the file inside the package, a .gguf")


class TrainedHere(BaseModel):
    """A model of a control (config/controls.yaml): the one that is exposed to the members, or its twin."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="the control")
    role: Role


class ModelEntry(BaseModel):
    """One model: where it comes from and how its texts are scored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    hub: str | None = None
    path: Path | None = None
    package: PackageFile | None = None
    control: TrainedHere | None = None
    revision: str | None = Field(default=None, description="hub branch, tag or commit")
    dtype: Dtype = "float32"
    attention: Attention = Field(default="sdpa", description="sdpa where the architecture has it, else eager")
    start_token: str | None = Field(default=None, description="None: the family's default, else bos, else eos")
    start_token_policy: StartTokenPolicy = "always"
    window: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="tokens a pass; None: the context length"
    )
    stride: Annotated[int, Field(ge=1)] | None = Field(default=None, description="None: half a window")
    release_date: date | None = None
    training_cutoff: date | None = None
    reference_model: str | None = Field(default=None, description="for the detector reference")
    reference_corpus: str | None = Field(
        default="sotu", description="in references.yaml, for dc_pdd; of the language of the texts"
    )
    licence: str | None = None
    trust_remote_code: bool = False
    notes: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package, self.control)) != 1:
            raise ValueError("exactly one of hub, path, package and control says where the model is")
        if "|" in self.name or not self.name.strip():
            raise ValueError("a model's name is not empty and holds no '|'")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        if self.window is not None and self.stride is not None and self.stride >= self.window:
            raise ValueError("stride must be smaller than window")
        return self


def load_models(folder: Path | None = None) -> Mapping[str, ModelEntry]:
    """The entries of models.yaml by name, in the file's order.

    Raises ConfigError naming the file, the entry and the key that is wrong.
    """
    return read_models((folder or config_dir()) / FILE_NAME)


def read_models(path: Path) -> Mapping[str, ModelEntry]:
    """The entries of one file in the form of models.yaml; as :func:`load_models`."""
    entries = read_entries(path, "models", "model", "it says which models are audited")
    return {name: _entry(path, name, fields) for name, fields in entries.items()}


def _entry(path: Path, name: str, fields: object) -> ModelEntry:
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: model {name}: the entry holds no fields")
    try:
        entry = ModelEntry(name=name, **fields)
    except (ValidationError, TypeError) as error:
        raise ConfigError(f"{path}: model {name}: {_first_problem(error)}") from error
    if entry.path is None:
        return entry
    # A relative path counts from the file that names it, whatever folder the daemon runs in.
    return entry.model_copy(update={"path": (path.parent / entry.path.expanduser()).resolve()})


def _first_problem(error: ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return one_line(error)
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])


def standing_models(models: Mapping[str, ModelEntry]) -> Mapping[str, ModelEntry]:
    """Those of ``models`` that sensors and the weekly audit take: all but a control's, which know its texts alone."""
    return {name: entry for name, entry in models.items() if entry.control is None}


def resolve_model(given: str, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """The entry for what a user typed: a configured name, a local folder or .gguf file, or a hub id.

    Raises ModelError where it is none of them.
    """
    if given in models:
        return models[given]
    if "|" in given or not given.strip():
        raise ModelError(f"a model's name is not empty and holds no '|': {given!r}")
    try:
        path = Path(given).expanduser()
        exists = path.exists()
    except (OSError, RuntimeError) as error:
        raise ModelError(f"no model at {given[:200]}: there can be no such path") from error
    if exists:
        # The whole path is the name: it is a partition's key, and means the same from every folder.
        return ModelEntry(name=str(path.resolve()), path=path.resolve())
    if given.endswith(".gguf") or given.startswith(("/", "./", "../", "~")):
        raise ModelError(f"no model at {given}: the path does not exist")
    if _HUB_ID.fullmatch(given):
        return ModelEntry(name=given, hub=given)
    near = difflib.get_close_matches(given, models, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"configured: {', '.join(models) or 'none'}"
    raise ModelError(f"{given} is neither in config/models.yaml nor a hub id nor a path; {hint}")
