"""config/models.yaml: which models are audited and under which conventions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from audit_pipeline.config.entries import Entries, EntryFile, EntryReference
from audit_pipeline.config.problems import Fault, InvalidEntryError, Problem, did_you_mean, split_names
from audit_pipeline.config.validation import StrictSettings, Text, resolve_against, validate_as
from audit_pipeline.errors import ModelError, escape_unprintable
from audit_pipeline.models.adapter_files import ADAPTER_CONFIG, read_adapter_config, read_base_revision
from audit_pipeline.models.series import Checkpoint, Series, expand_series
from audit_pipeline.models.server_settings import ServerSettings
from audit_pipeline.store.control_names import Role
from audit_pipeline.store.paths import explain_invalid_partition

FILE_NAME = "models.yaml"

Dtype = Literal["float32", "bfloat16", "float16"]
StartTokenPolicy = Literal["always", "tokenizer"]
BackendName = Literal["transformers", "openai"]
DialectName = Literal["vllm", "sglang", "llama_cpp", "completions"]


@dataclass(frozen=True)
class DialectTraits:
    """What every server of a dialect does alike.

    ``takes_ids``: prompts are sent as token ids; None: the probe tries. ``server_adds_start_token``: see
    :class:`Endpoint`. ``names_ids``: best tokens have their ids. ``gives_rank``: answers have the rank of the text's
    own token. ``has_plugin``: the plugin corpus-audit-vllm gives the moments.
    """

    takes_ids: bool | None
    server_adds_start_token: bool = False
    names_ids: bool = False
    gives_rank: bool = False
    has_plugin: bool = False


DIALECT_TRAITS: Mapping[DialectName, DialectTraits] = {
    "vllm": DialectTraits(takes_ids=True, names_ids=True, gives_rank=True, has_plugin=True),
    "sglang": DialectTraits(takes_ids=True, names_ids=True),
    "llama_cpp": DialectTraits(takes_ids=False, server_adds_start_token=True),
    "completions": DialectTraits(takes_ids=None),
}
Attention = Literal["sdpa", "eager", "flash_attention_2"]

# What an entry says of weights that are run here.
_OF_WEIGHTS = {"dtype", "attention", "compile", "trust_remote_code", "devices"}
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class InstalledFile(StrictSettings):
    """A model file that an installed Python package carries; the package is never imported."""

    distribution: str = Field(description="the installed package's name")
    file: str = Field(description="name of the file inside the package, a .gguf")


class TrainedHere(StrictSettings):
    """A model of a control (config/controls.yaml): the one that is exposed to the members, or the other (role twin)."""

    name: str = Field(description="the control")
    role: Role = Field(description="exposed: was trained on the members; twin: was trained on other texts")


class AdapterFiles(StrictSettings):
    """A trained adapter (LoRA and its like) that is put on a base model."""

    hub: str | None = Field(default=None, description="an adapter of the hub (owner/name)")
    path: Path | None = Field(default=None, description="its folder; a relative path counts from this file's folder")
    revision: str | None = Field(default=None, description="hub branch, tag or commit")

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if (self.hub is None) == (self.path is None):
            raise ValueError("exactly one of hub and path says where the adapter is")
        return self

    def __str__(self) -> str:
        if self.hub is None:
            return f"path {self.path}"
        return f"hub {self.hub}" if self.revision is None else f"hub {self.hub} at {self.revision}"


@dataclass(frozen=True)
class UserHostedWeights:
    """The back end of a model whose weights are run on machines of the user's: this one, or those of a cluster.

    :class:`Endpoint` has the same interface for what is known without reaching the back end: a caller need not know
    which of the two a model has.
    """

    is_here: ClassVar[bool] = True
    described: ClassVar[str] = "run here"
    server_adds_start_token: ClassVar[bool] = False

    def can_give(self, statistic: str) -> bool:
        """Return whether a statistic of every token can be had, by the names of CachedKind.statistics: any can."""
        return True

    def describe_location(self, files: str) -> str:
        """Return where the model is, in words, of which these are about its ``files``."""
        return files


class Endpoint(ServerSettings):
    """A server that gives log-probabilities of the tokens of a prompt, and what it may be asked for."""

    is_here: ClassVar[bool] = False

    url: str = Field(description="up to the part that all routes share: http://127.0.0.1:8000/v1")
    model: str = Field(description="the name that the server knows the model by")
    dialect: DialectName = Field(description="how the server is asked, and what its answers look like")
    top_logprobs: Annotated[int, Field(ge=0)] = Field(
        default=20, description="best tokens that are asked for at every place; servers have limits of their own"
    )
    moments: bool = Field(default=False, description="vllm alone: the server runs the plugin corpus-audit-vllm")
    price_per_million: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="price of a million tokens that are sent"
    )

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        if self.moments and not self.traits.has_plugin:
            fitting = [dialect for dialect, traits in DIALECT_TRAITS.items() if traits.has_plugin]
            raise ValueError(f"moments goes with dialect: {' or '.join(fitting)}")
        if self.moments and self.top_logprobs > 20:
            raise ValueError("with moments, answers have the 20 best tokens: leave top_logprobs out")
        if self.max_cost is not None and self.price_per_million is None:
            raise ValueError("max_cost goes with price_per_million")
        return self

    @property
    def described(self) -> str:
        """The model by its server's name for it, and where that is, in words."""
        at = f" at {self.revision}" if self.revision is not None else ""
        return f"{self.model}{at} at {self.url}"

    @property
    def traits(self) -> DialectTraits:
        """What the server does as every one of its dialect."""
        return DIALECT_TRAITS[self.dialect]

    @property
    def server_adds_start_token(self) -> bool:
        """Whether the server puts the start token in front, and never gives a prompt's first log-probability."""
        return self.traits.server_adds_start_token

    def cost_of(self, tokens: int) -> float:
        """Return what so many tokens cost by the price; 0 without a price."""
        return tokens * (self.price_per_million or 0.0) / 1e6

    def can_give(self, statistic: str) -> bool:
        """Return whether answers hold a statistic of every token, by the names of CachedKind.statistics."""
        return statistic in self.available_statistics

    def describe_location(self, files: str) -> str:
        """Return where the model is, in words, of which ``files`` are about its tokenizer's."""
        return f"{self.described}; tokenizer: {files}"

    @property
    def available_statistics(self) -> frozenset[str]:
        """The statistics of every token that answers hold, by the names of CachedKind.statistics."""
        best = self.top_logprobs
        by_id = self.traits.names_ids
        return frozenset(
            [
                "logprob",
                *(["max_logprob"] if best else []),
                *(["argmax_id"] if best and by_id else []),
                *(["rank"] if self.traits.gives_rank else []),
                *(["mean", "std"] if self.moments else []),
                *(["topk"] if best >= 20 and by_id else []),
                *(["log_mass_40"] if best >= 40 and by_id else []),
            ]
        )


class ModelEntry(StrictSettings):
    """One model: where it comes from and how its texts are scored."""

    name: str
    title: Text | None = Field(default=None, description="its name for people, in reports; None: the entry's own")
    backend: BackendName = Field(default="transformers", description="what runs the model: transformers, or openai")
    endpoint: Endpoint | None = Field(
        default=None, description="with backend: openai; hub, path or package then say where its tokenizer is"
    )
    hub: str | None = Field(default=None, description="a model of the hub (owner/name)")
    path: Path | None = Field(
        default=None, description="a folder or a .gguf file; a relative path counts from this file's folder"
    )
    package: InstalledFile | None = Field(default=None, description="a model file inside an installed Python package")
    control: TrainedHere | None = Field(default=None, description="a model that is trained here (controls.yaml)")
    adapter: AdapterFiles | None = Field(default=None, description="put on that model, which is its base")
    series: Series | None = Field(default=None, description="its checkpoints: a model for each, name@checkpoint")
    # Not a key of entries: the place of a model that is made of an entry with a series.
    checkpoint: Checkpoint | None = Field(default=None, exclude=True)
    card: str | None = Field(
        default=None,
        description="the fingerprint of a model whose files are not here: its card and tokenizer in the data folder "
        "take their place, and it cannot be run (packs name models so)",
    )
    revision: str | None = Field(default=None, description="hub branch, tag or commit")
    dtype: Dtype = Field(default="float32", description="of the pass; statistics are always reduced in float32")
    attention: Attention = Field(default="sdpa", description="sdpa where the architecture has it, else eager")
    compile: bool = Field(
        default=False,
        description="the decoder's layers are compiled, which rounds otherwise: for runs of minutes on a GPU",
    )
    start_token: str | None = Field(default=None, description="None: the family's default, else bos, else eos")
    start_token_policy: StartTokenPolicy = Field(
        default="always",
        description="always: one start token in front, every token is scored; tokenizer: as the tokenizer does it",
    )
    window: Annotated[int, Field(ge=2)] | None = Field(
        default=None, description="tokens per pass; None: the context length"
    )
    stride: Annotated[int, Field(ge=1)] | None = Field(default=None, description="None: half a window")
    release_date: date | None = Field(default=None, description="the day on which the model was published")
    training_cutoff: date | None = Field(
        default=None, description="the last day of its training data, where its makers say so"
    )
    reference_model: str | None = Field(default=None, description="for the detector reference")
    reference_corpus: str | None = Field(
        default="sotu", description="in references.yaml, for dc_pdd; of the language of the texts"
    )
    licence: str | None = Field(default=None, description="of the model")
    trust_remote_code: bool = Field(
        default=False, description="run code that comes with the model: only where you have read it"
    )
    devices: Literal["auto"] | None = Field(default=None, description="auto: layers on all there are; None: one device")
    notes: str | None = Field(default=None, description="whatever a reader should know")

    @property
    def host(self) -> UserHostedWeights | Endpoint:
        """What runs the model, as far as it is known without reaching it."""
        return self.endpoint or UserHostedWeights()

    @model_validator(mode="after")
    def _require_single_origin(self) -> Self:
        if sum(origin is not None for origin in (self.hub, self.path, self.package, self.control, self.card)) != 1:
            raise ValueError("exactly one of hub, path, package, control and card says where the model is")
        if self.adapter is not None and (self.card is not None or self.endpoint is not None):
            raise ValueError("an adapter goes with a base whose weights are on this machine")
        if self.card is not None and self.trust_remote_code:
            raise ValueError("of a model that is known by its card no code is run: leave trust_remote_code out")
        if "|" in self.name or not self.name.strip():
            raise ValueError("a model's name is not empty and holds no '|'")
        if self.revision is not None and self.hub is None:
            raise ValueError("revision goes with hub")
        if (self.backend == "openai") != (self.endpoint is not None):
            raise ValueError("backend: openai and endpoint go together")
        if self.endpoint is not None and self.endpoint.server_adds_start_token and self.start_token_policy == "always":
            raise ValueError(
                f"dialect: {self.endpoint.dialect} goes with start_token_policy: tokenizer (the server puts the start "
                "token in front itself and does not give the first token's log-probability)"
            )
        if self.endpoint is not None and self.control is not None:
            raise ValueError("a control's models are run on this machine: leave endpoint out")
        if self.endpoint is not None and (senseless := sorted(_OF_WEIGHTS & self.model_fields_set)):
            raise ValueError(f"{', '.join(senseless)}: said of weights on this machine, and an endpoint has its own")
        if self.window is not None and self.stride is not None and self.stride >= self.window:
            raise ValueError("stride must be smaller than window")
        if self.compile and self.devices is not None:
            raise ValueError("compile goes with one device: leave devices out")
        cutoff, release = self.training_cutoff, self.release_date
        if cutoff is not None and release is not None and cutoff > release:
            raise ValueError(f"training_cutoff {cutoff} is after release_date {release}: correct one of the two")
        return self


def _build_entry(name: str, fields: Any, folder: Path) -> ModelEntry:
    if (problem := explain_invalid_partition("model", name)) is not None:
        raise InvalidEntryError([Fault((), problem)])
    entry = validate_as(ModelEntry, {**fields, "name": name})
    if entry.adapter is not None and entry.adapter.path is not None:
        path = resolve_against(folder, entry.adapter.path).resolve()
        entry = entry.model_copy(update={"adapter": AdapterFiles(path=path)})
    if entry.path is None:
        return entry
    return entry.model_copy(update={"path": resolve_against(folder, entry.path).resolve()})


def _build_entries(name: str, fields: Any, folder: Path) -> tuple[ModelEntry, ...]:
    """Return the model of an entry, or those of its series."""
    members = expand_series(name, fields, folder) if "series" in fields else {name: fields}
    return tuple(_build_entry(member, own, folder) for member, own in members.items())


FILE = EntryFile(
    FILE_NAME,
    "models",
    "model",
    "it says which models are audited",
    _build_entries,
    references=(
        EntryReference(("control", "name"), "control"),
        EntryReference(("reference_model",), "model", allow_external=True),
        EntryReference(("reference_corpus",), "corpus"),
    ),
    may_be_paths=True,
    affects_audits=True,
)


class Models(Entries[ModelEntry]):
    """The models of the entries that can be used, those of a series in its place; problems are by entry."""

    def __init__(self, entries: Entries[tuple[ModelEntry, ...]]) -> None:
        self.entries = entries
        good = {model.name: model for models in entries.values() for model in models}
        super().__init__(entries.path, entries.entry_kind, good, entries.broken, entries.positions, entries.raw_values)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of models; of a broken entry its own."""
        of_entries = ([model.name for model in self.entries.get(name, ())] or [name] for name in self.entries.names)
        return tuple(name for names in of_entries for name in names)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self.entries.problems

    def with_faults(self, faults: Mapping[str, Sequence[Fault]]) -> Models:
        """Return the models with those entries broken that have ``faults``, by the entry's name."""
        return Models(self.entries.with_faults(faults))


def load_models(folder: Path | None = None) -> Models:
    """Return the models of models.yaml; raises ConfigError, naming the file, where none of it can be read."""
    return Models(FILE.load(folder))


def exclude_control_models(models: Mapping[str, ModelEntry]) -> Mapping[str, ModelEntry]:
    """Return the models that sensors and the weekly audit take: not a control's, which know its texts alone."""
    return {name: entry for name, entry in models.items() if entry.control is None}


def resolve_models(name_or_path: str, models: Entries[ModelEntry]) -> Sequence[ModelEntry]:
    """Return the models that a user typed: a series in its order, a model, or a list of both with commas.

    A path that exists is one model, even if it has a comma. Raises ConfigError and ModelError as :func:`resolve_model`
    does.
    """
    if "," in name_or_path and not os.path.exists(os.path.expanduser(name_or_path)):
        found = (entry for part in split_names(name_or_path) for entry in resolve_models(part, models))
        return list({entry.name: entry for entry in found}.values())
    return _list_checkpoints(name_or_path, models) or [resolve_model(name_or_path, models)]


def _list_checkpoints(series: str, models: Mapping[str, ModelEntry]) -> Sequence[ModelEntry]:
    return [entry for entry in models.values() if entry.checkpoint is not None and entry.checkpoint.series == series]


def resolve_model(name_or_path: str, models: Entries[ModelEntry]) -> ModelEntry:
    """Return the entry for what a user typed: a configured name, a local folder or .gguf file, or a hub id.

    Of a folder with an adapter it is the entry of its base, with the adapter. Raises ConfigError where it is a name
    whose entry is broken, and ModelError where it is none of them, or a whole series.
    """
    models.require_not_broken(name_or_path)
    if name_or_path in models:
        return models[name_or_path]
    if checkpoints := _list_checkpoints(name_or_path, models):
        raise ModelError(
            f"{name_or_path} is a series of {len(checkpoints)} models: name a checkpoint, such as "
            f"{checkpoints[-1].name}; corpus-audit audit takes the whole series"
        )
    if "|" in name_or_path or not name_or_path.strip():
        raise ModelError(f"a model's name is not empty and holds no '|': {name_or_path!r}")
    # Not Path.exists, which raises where there can be no such path.
    if os.path.exists(os.path.expanduser(name_or_path)):
        # The whole path is the name: it is a partition's key, and means the same from every folder.
        path = Path(name_or_path).expanduser().resolve()
        if escape_unprintable(str(path)) != str(path):
            raise ModelError(f"{path} cannot be a model's name: it holds control characters; rename its folder")
        try:
            if (path / ADAPTER_CONFIG).is_file() and not (path / "config.json").is_file():
                return _build_adapter_entry(path, models)
            return ModelEntry(name=str(path), path=path)
        except ValidationError as error:
            raise ModelError(f"{path} cannot be a model's name: it holds a '|'; move or rename its folder") from error
    if _is_path(name_or_path):
        raise ModelError(f"no model at {name_or_path}: the path does not exist")
    if HUB_ID.fullmatch(name_or_path):
        return ModelEntry(name=name_or_path, hub=name_or_path)
    hint = did_you_mean(name_or_path, models.names, "configured")
    raise ModelError(f"{name_or_path} is neither in config/{FILE_NAME} nor a hub id nor a path; {hint}")


def _build_adapter_entry(folder: Path, models: Mapping[str, ModelEntry]) -> ModelEntry:
    """Return the entry of an adapter's base, as the adapter names it, with the adapter.

    A configured model of that name, hub id or path gives its settings, such as the start token. A base on the hub is of
    the revision that the adapter names.
    """
    base = read_adapter_config(folder).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise ModelError(
            f"{folder / ADAPTER_CONFIG} does not name the base of the adapter (base_model_name_or_path: {base!r}): "
            f"write an entry in config/{FILE_NAME} that names it, with adapter: {{path: {folder}}}"
        )
    own: dict[str, Any] = {"name": str(folder), "adapter": AdapterFiles(path=folder)}
    revision = read_base_revision(folder)
    paths = [path.resolve() for path in (Path(base).expanduser(), folder / base) if base and path.exists()]
    for entry in models.values():
        is_plain = entry.adapter is None and entry.checkpoint is None and entry.host.is_here and entry.card is None
        if is_plain and (base in (entry.name, entry.hub) or entry.path in paths[:1]):
            unknown = dict.fromkeys(("title", "release_date", "training_cutoff"))
            if entry.hub is not None and revision is not None:
                own["revision"] = revision
            return entry.model_copy(update={**own, **unknown})
    if paths or HUB_ID.fullmatch(base):
        return validate_as(ModelEntry, {**own, **({"path": paths[0]} if paths else {"hub": base})})
    raise ModelError(
        f"the base of the adapter {folder} is not found: '{base}' ({ADAPTER_CONFIG}) is no configured model, path or "
        f"hub id; write an entry in config/{FILE_NAME} that names its base, with adapter: {{path: {folder}}}"
    )


def is_path_or_hub_id(text: str) -> bool:
    """Return whether ``text`` reads as a hub id or a path, so that it may be a model that no entry names."""
    return _is_path(text) or HUB_ID.fullmatch(text) is not None


def _is_path(text: str) -> bool:
    return text.endswith(".gguf") or text.startswith(("/", "./", "../", "~"))
