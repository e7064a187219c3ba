"""The entries of config/models.yaml: which models are audited, and how they score texts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem, did_you_mean, split_names
from audit_pipeline.config.validation import StrictSettings, Text, resolve_against, validate_as
from audit_pipeline.errors import ModelError, escape_unprintable
from audit_pipeline.models.model_files import ADAPTER_CONFIG, read_adapter_config, read_base_revision
from audit_pipeline.models.series import Checkpoint, Series, expand_series
from audit_pipeline.models.server_settings import Endpoint, UserHostedWeights
from audit_pipeline.store.paths import Role, explain_invalid_partition

FILE_NAME = "models.yaml"

Dtype = Literal["float32", "bfloat16", "float16"]
StartTokenPolicy = Literal["always", "tokenizer"]
BackendName = Literal["transformers", "openai"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]

# Settings that apply only to weights that run on the user's machines.
_WEIGHT_SETTINGS = {"dtype", "attention", "compile", "trust_remote_code", "devices"}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
# Keys that change neither the files nor the token statistics of a model without an adapter.
_IRRELEVANT_FOR_BASE = {
    *("name", "title", "release_date", "training_cutoff", "licence", "notes"),
    *("adapter", "base", "reference_model", "reference_corpus", "devices"),
}


class InstalledFile(StrictSettings):
    """A model file inside an installed Python package. The package is never imported."""

    distribution: str = Field(description="name of the installed package")
    file: str = Field(description="name of the .gguf file inside the package")


class TrainedHere(StrictSettings):
    """A model that was trained for a control (config/controls.yaml)."""

    name: str = Field(description="name of the control")
    role: Role = Field(
        description="model of the control; exposed: trained on the members; twin: trained on other texts"
    )


class AdapterFiles(StrictSettings):
    """A trained adapter (for example LoRA) that is applied to a base model."""

    hub: str | None = Field(default=None, description="an adapter on the hub (owner/name)")
    path: Path | None = Field(
        default=None, description="folder of the adapter; a relative path starts at this file's folder"
    )
    revision: str | None = Field(default=None, description="branch, tag or commit on the hub; None: default branch")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if (self.hub is None) == (self.path is None):
            raise ValueError("an adapter requires either 'hub' or 'path'. Add the missing key or remove one of them.")
        return self

    def __str__(self) -> str:
        if self.hub is None:
            return f"path {self.path}"
        if self.revision is None:
            return f"hub {self.hub}"
        return f"hub {self.hub} at {self.revision}"


class ModelEntry(StrictSettings):
    """A model: its location and its settings for scoring."""

    name: str
    title: Text | None = Field(default=None, description="name of the model in reports; None: the name of the entry")
    backend: BackendName = Field(
        default="transformers",
        description="transformers: the model runs on your machine; openai: the model runs on a server (endpoint)",
    )
    endpoint: Endpoint | None = Field(
        default=None,
        description="server of the model, for backend: openai; hub, path or package then locates the tokenizer",
    )
    hub: str | None = Field(default=None, description="a model on the hub (owner/name)")
    path: Path | None = Field(
        default=None, description="a folder or a .gguf file; a relative path starts at this file's folder"
    )
    package: InstalledFile | None = Field(default=None, description="a model file inside an installed Python package")
    control: TrainedHere | None = Field(default=None, description="a model that is trained here (controls.yaml)")
    adapter: AdapterFiles | None = Field(default=None, description="an adapter; the entry's model is its base")
    series: Series | None = Field(
        default=None, description="checkpoints of the model; each becomes a model called name@checkpoint"
    )
    # Not a key that users write: series.py sets it to the position of a model in its series.
    checkpoint: Checkpoint | None = Field(default=None, exclude=True)
    base: str | None = Field(
        default=None,
        description="entry of the model that this model was fine-tuned from; it is the default of reference_model",
    )
    card: str | None = Field(
        default=None,
        description="fingerprint of a model that cannot run, as in an evidence pack; the data folder contains its card "
        "and its tokenizer",
    )
    revision: str | None = Field(
        default=None,
        description="branch, tag or commit on the hub; None: the base revision that the adapter names, else the "
        "default branch",
    )
    dtype: Dtype = Field(
        default="float32", description="number format of the forward pass; statistics always use float32"
    )
    attention: Attention = Field(
        default="sdpa", description="implementation of attention; sdpa becomes eager if the architecture has no sdpa"
    )
    compile: bool = Field(
        default=False,
        description="compile the layers of the decoder, which makes runs of several minutes on a GPU faster; "
        "compilation changes the rounding of scores",
    )
    start_token: str | None = Field(
        default=None, description="token before each text; None: the default of the model family, else bos, else eos"
    )
    start_token_policy: StartTokenPolicy = Field(
        default="always",
        description="always: add one start token and score every token; tokenizer: add the special tokens that the "
        "tokenizer adds",
    )
    window: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="maximum tokens per pass; None: the context length"
    )
    stride: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="tokens between the starts of two windows of a long text; None: half a window"
    )
    release_date: date | None = Field(default=None, description="day on which the model was published")
    training_cutoff: date | None = Field(
        default=None, description="last day of the training data, if the makers have published it"
    )
    reference_model: str | None = Field(
        default=None,
        description="model that the detectors reference and error_zone compare with; if the key is missing: the entry "
        "in base, else the adapter's base model, else the first checkpoint of the series; None: these detectors are "
        "skipped",
    )
    # Not a key that users write: add_default_reference sets it.
    default_reference: str | None = Field(default=None, exclude=True)
    reference_corpus: str | None = Field(
        default="sotu",
        description="entry of references.yaml with the token frequencies for the detector dc_pdd; its texts must have "
        "the language of the audited texts",
    )
    licence: str | None = Field(default=None, description="licence of the model")
    trust_remote_code: bool = Field(
        default=False, description="run the code that comes with the model; read that code before you allow it"
    )
    devices: Literal["auto"] | None = Field(
        default=None, description="auto: spread the layers over all devices; None: use one device"
    )
    notes: str | None = Field(default=None, description="free text for readers of the configuration")

    @property
    def host(self) -> UserHostedWeights | Endpoint:
        """Return the back end of the model: a server, or the user's machines."""
        return self.endpoint or UserHostedWeights()

    @property
    def detector_reference(self) -> str | None:
        """Return the name of the model that detectors compare with: ``reference_model``, or else the default."""
        return self.reference_model or self.default_reference

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        conflict = _find_conflict(self)
        if conflict is not None:
            raise ValueError(_describe_conflict(conflict, self))
        return self


_Conflict = Literal[
    "origin",
    "adapter",
    "card_code",
    "name",
    "revision",
    "backend",
    "start_token",
    "control_endpoint",
    "weight_settings",
    "stride",
    "compile",
    "dates",
]


def _find_conflict(entry: ModelEntry) -> _Conflict | None:
    """Return the first rule that the settings of an entry violate, or None. See :func:`_describe_conflict`."""
    origins = (entry.hub, entry.path, entry.package, entry.control, entry.card)
    endpoint = entry.endpoint
    is_served = endpoint is not None
    adds_start_token = endpoint is not None and endpoint.server_adds_start_token
    cutoff = entry.training_cutoff
    release = entry.release_date
    is_violated: dict[_Conflict, bool] = {
        "origin": sum(origin is not None for origin in origins) != 1,
        "adapter": entry.adapter is not None and (entry.card is not None or is_served),
        "card_code": entry.card is not None and entry.trust_remote_code,
        "name": not is_model_name(entry.name),
        "revision": entry.revision is not None and entry.hub is None,
        "backend": (entry.backend == "openai") != is_served,
        "start_token": adds_start_token and entry.start_token_policy == "always",
        "control_endpoint": is_served and entry.control is not None,
        "weight_settings": is_served and not _WEIGHT_SETTINGS.isdisjoint(entry.model_fields_set),
        "stride": entry.window is not None and entry.stride is not None and entry.stride >= entry.window,
        "compile": entry.compile and entry.devices is not None,
        "dates": cutoff is not None and release is not None and cutoff > release,
    }
    for conflict, violated in is_violated.items():
        if violated:
            return conflict
    return None


def _describe_conflict(conflict: _Conflict, entry: ModelEntry) -> str:
    """Return the error message for a conflict between settings of an entry."""
    dialect = entry.endpoint.dialect if entry.endpoint is not None else None
    weight_settings = ", ".join(sorted(_WEIGHT_SETTINGS & entry.model_fields_set))
    messages: dict[_Conflict, str] = {
        "origin": (
            "a model requires exactly one of the keys 'hub', 'path', 'package', 'control' and 'card'. Add the missing "
            "key or remove the others."
        ),
        "adapter": "'adapter' requires a base model with weights on this machine. Remove 'card' or 'endpoint'.",
        "card_code": "a model with 'card' cannot run code. Remove 'trust_remote_code'.",
        "name": f"the model name {entry.name!r} is empty or contains '|'. Choose another name.",
        "revision": "'revision' requires 'hub'. Remove 'revision' or name a model on the hub.",
        "backend": "'backend: openai' and 'endpoint' require each other. Add the missing key or remove both keys.",
        "start_token": (
            f"dialect {dialect!r} requires 'start_token_policy: tokenizer'. The server adds the start token itself and "
            "does not return the first token's log-probability."
        ),
        "control_endpoint": "models of controls run on this machine. Remove 'endpoint'.",
        "weight_settings": (
            f"a model with 'endpoint' runs on a server, so these settings do not apply to it: {weight_settings}. "
            "Remove the settings, or remove 'endpoint'."
        ),
        "stride": f"stride {entry.stride} is not smaller than window {entry.window}. Choose a smaller stride.",
        "compile": "'compile' requires a single device. Remove 'devices' or 'compile'.",
        "dates": (
            f"training_cutoff {entry.training_cutoff} is after release_date {entry.release_date}. Correct one of them."
        ),
    }
    return messages[conflict]


def is_model_name(name: str) -> bool:
    """Return True if a text can name a model: it is not empty and has no '|', which divides partition keys."""
    return "|" not in name and bool(name.strip())


def _build_entry(name: str, fields: Any, folder: Path) -> ModelEntry:
    problem = explain_invalid_partition("model", name)
    if problem is not None:
        raise InvalidEntryError([Fault((), problem)])
    entry = validate_as(ModelEntry, {**fields, "name": name})
    if entry.adapter is not None and entry.adapter.path is not None:
        path = resolve_against(folder, entry.adapter.path).resolve()
        entry = entry.model_copy(update={"adapter": AdapterFiles(path=path)})
    if entry.path is None:
        return entry
    return entry.model_copy(update={"path": resolve_against(folder, entry.path).resolve()})


def _build_entries(name: str, fields: Any, folder: Path) -> tuple[ModelEntry, ...]:
    """Build the model of an entry, or the models of its series."""
    members = {name: fields}
    if "series" in fields:
        members = expand_series(name, fields, folder)
    return tuple(_build_entry(member, member_fields, folder) for member, member_fields in members.items())


FILE = EntryFile(
    FILE_NAME,
    "models",
    "model",
    "it lists the models to audit",
    _build_entries,
    references=(
        EntryReference(("control", "name"), "control"),
        EntryReference(("base",), "model"),
        EntryReference(("reference_model",), "model", allow_external=True),
        EntryReference(("reference_corpus",), "corpus"),
    ),
    may_be_paths=True,
    affects_audits=True,
)


class Models(Entries[ModelEntry]):
    """The models of all valid entries, in the order of the entries. A series contributes several models."""

    def __init__(self, entries: Entries[tuple[ModelEntry, ...]]) -> None:
        self.entries = entries
        read = {model.name: model for models in entries.values() for model in models}
        usable = {name: add_default_reference(model, read) for name, model in read.items()}
        super().__init__(
            entries.path, entries.entry_kind, usable, entries.broken, entries.positions, entries.raw_values
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models. A broken entry contributes its own name."""
        names: list[str] = []
        for entry_name in self.entries.names:
            models = self.entries.get(entry_name, ())
            names += [model.name for model in models] or [entry_name]
        return tuple(names)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of all broken entries."""
        return self.entries.problems

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Models:
        """Return the models after the entries named in ``faults`` have been marked as broken."""
        return Models(self.entries.with_faults(faults))


def add_default_reference(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """Return the entry with its default reference model. An entry with the key ``reference_model`` has no default."""
    if "reference_model" in entry.model_fields_set:
        return entry
    return entry.model_copy(update={"default_reference": find_default_reference(entry, models)})


def find_default_reference(entry: ModelEntry, models: Mapping[str, ModelEntry]) -> str | None:
    """Return the name of the default reference model of an entry, or None if it has none.

    - An entry with ``base``: the entry that ``base`` names.
    - An entry with an adapter: its base model. This is the entry with the same files and settings, or, if there is no
      such entry, the model of :func:`build_adapter_base`.
    - A checkpoint of a series: the first checkpoint of the series, unless the entry is the first checkpoint.

    Args:
        entry: The entry.
        models: All models of models.yaml.
    """
    if entry.base is not None:
        return entry.base
    if entry.adapter is not None:
        series = entry.name if entry.checkpoint is None else entry.checkpoint.series
        base = build_adapter_base(entry, f"base of {series}")
        files = base.model_dump(exclude=_IRRELEVANT_FOR_BASE)
        for candidate in models.values():
            if candidate.adapter is None and candidate.model_dump(exclude=_IRRELEVANT_FOR_BASE) == files:
                return candidate.name
        return base.name
    if entry.checkpoint is not None:
        for other in models.values():
            if other.checkpoint is not None and other.checkpoint.series == entry.checkpoint.series:
                return None if other.name == entry.name else other.name
    return None


def build_adapter_base(entry: ModelEntry, name: str) -> ModelEntry:
    """Return the entry of an adapter's base model: the same entry without the adapter."""
    changes: dict[str, Any] = {"name": name, "revision": _find_base_revision(entry)}
    changes |= dict.fromkeys(("title", "release_date", "training_cutoff", "licence", "notes"))
    changes |= dict.fromkeys(("adapter", "checkpoint", "base", "reference_model", "default_reference"))
    return entry.model_copy(update=changes)


def _find_base_revision(entry: ModelEntry) -> str | None:
    """Return the revision of the base in the entry, or else in the folder of the adapter.

    Nothing is fetched, so the revision in the files of an adapter on the hub is unknown.
    """
    if entry.hub is None or entry.revision is not None or entry.adapter is None or entry.adapter.path is None:
        return entry.revision
    folder = entry.adapter.path.expanduser()
    try:
        if (folder / ADAPTER_CONFIG).is_file() and read_adapter_config(folder)["base_model_name_or_path"] == entry.hub:
            return read_base_revision(folder)
    except (ModelError, KeyError):
        # The code that locates the adapter reports a damaged file.
        return None
    return None


def load_models(folder: Path | None = None) -> Models:
    """Load the models of models.yaml.

    Raises:
        ConfigError: If the file cannot be read at all.
    """
    return Models(FILE.load(folder))


def exclude_control_models(models: Mapping[str, ModelEntry]) -> Mapping[str, ModelEntry]:
    """Return the models that sensors and the weekly audit use: all except the models trained for controls."""
    return {name: entry for name, entry in models.items() if entry.control is None}


def resolve_models(name_or_path: str, models: Entries[ModelEntry]) -> Sequence[ModelEntry]:
    """Return the models that a user has typed: a series in its order, a model, or a comma-separated list of both.

    A path that exists is one model, even if it contains a comma.

    Raises:
        ConfigError: If :func:`resolve_model` raises it.
        ModelError: If no name is given, or if :func:`resolve_model` raises it.
    """
    if "," in name_or_path and not os.path.exists(os.path.expanduser(name_or_path)):
        entries_by_name: dict[str, ModelEntry] = {}
        for part in split_names(name_or_path):
            for entry in resolve_models(part, models):
                entries_by_name[entry.name] = entry
        if not entries_by_name:
            raise ModelError(f"'{name_or_path}' names no model. Name the models, separated by commas.")
        return list(entries_by_name.values())
    return _list_checkpoints(name_or_path, models) or [resolve_model(name_or_path, models)]


def _list_checkpoints(series: str, models: Mapping[str, ModelEntry]) -> Sequence[ModelEntry]:
    return [entry for entry in models.values() if entry.checkpoint is not None and entry.checkpoint.series == series]


def resolve_model(name_or_path: str, models: Entries[ModelEntry]) -> ModelEntry:
    """Return the entry of a model that a user has typed: a configured name, a local folder or .gguf file, or a hub id.

    For a folder with an adapter, return the entry of the adapter's base with this adapter.

    Raises:
        ConfigError: If the name belongs to a broken entry.
        ModelError: If the text names no model, or a whole series.
    """
    models.require_not_broken(name_or_path)
    if name_or_path in models:
        return models[name_or_path]
    checkpoints = _list_checkpoints(name_or_path, models)
    if checkpoints:
        raise ModelError(
            f"{name_or_path} is a series of {len(checkpoints)} models. Name a checkpoint, such as "
            f"{checkpoints[-1].name}. Only 'corpus-audit audit' accepts a whole series."
        )
    if not is_model_name(name_or_path):
        raise ModelError(f"the model name {name_or_path!r} is empty or contains '|'. Choose another name.")
    # Path.exists raises an error for texts that cannot be paths.
    if os.path.exists(os.path.expanduser(name_or_path)):
        return _build_path_entry(Path(name_or_path).expanduser().resolve(), models)
    if _is_path(name_or_path):
        raise ModelError(f"there is no model at {name_or_path}, because the path does not exist")
    if HUB_ID.fullmatch(name_or_path):
        return ModelEntry(name=name_or_path, hub=name_or_path)
    hint = did_you_mean(name_or_path, models.names, "configured")
    raise ModelError(
        f"{name_or_path} is not the name of a model in config/{FILE_NAME}, not a hub id and not a path; {hint}"
    )


def _build_path_entry(path: Path, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """Return an entry for the model at ``path``. Its name is the absolute path, in every working directory."""
    if escape_unprintable(str(path)) != str(path):
        raise ModelError(f"{path} cannot be a model's name, because it contains control characters. Rename the folder.")
    try:
        if (path / ADAPTER_CONFIG).is_file() and not (path / "config.json").is_file():
            entry = _build_adapter_entry(path, models)
            return entry.model_copy(update={"default_reference": find_default_reference(entry, models)})
        return ModelEntry(name=str(path), path=path)
    except ValidationError as error:
        raise ModelError(
            f"{path} cannot be a model's name, because it contains '|'. Move or rename the folder."
        ) from error


def _build_adapter_entry(folder: Path, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """Return an entry for the adapter in ``folder`` on the base model that its configuration names.

    If a configured model has that name, hub id or path, its settings apply, such as the start token. For a base on the
    hub, the revision in the adapter's configuration is used. The reference model of the base does not apply.
    """
    base = read_adapter_config(folder).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise ModelError(
            f"{folder / ADAPTER_CONFIG} does not name the base model of the adapter (base_model_name_or_path: "
            f"{base!r}). Add an entry to config/{FILE_NAME} that names the base model and has adapter: "
            f"{{path: {folder}}}."
        )
    changes: dict[str, Any] = {"name": str(folder), "adapter": AdapterFiles(path=folder)}
    revision = read_base_revision(folder)
    paths = [path.resolve() for path in (Path(base).expanduser(), folder / base) if base and path.exists()]
    for entry in models.values():
        is_plain = entry.adapter is None and entry.checkpoint is None and entry.host.is_here and entry.card is None
        if is_plain and (base in (entry.name, entry.hub) or entry.path in paths[:1]):
            changes |= dict.fromkeys(("title", "release_date", "training_cutoff", "base", "reference_model"))
            if entry.hub is not None and revision is not None:
                changes["revision"] = revision
            return entry.model_copy(update=changes)
    if paths:
        return validate_as(ModelEntry, {**changes, "path": paths[0]})
    if HUB_ID.fullmatch(base):
        return validate_as(ModelEntry, {**changes, "hub": base})
    raise ModelError(
        f"the base model of the adapter {folder} was not found: '{base}' ({ADAPTER_CONFIG}) is not a configured model, "
        f"a path or a hub id. Add an entry to config/{FILE_NAME} that names the base model and has adapter: "
        f"{{path: {folder}}}."
    )


def is_path_or_hub_id(text: str) -> bool:
    """Return True if ``text`` has the form of a hub id or a path, so that it can name a model without an entry."""
    return _is_path(text) or HUB_ID.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    return text.endswith(".gguf") or text.startswith(("/", "./", "../", "~"))
