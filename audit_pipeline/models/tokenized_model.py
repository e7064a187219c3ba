"""The facts about a model that do not need its weights: identity, tokenizer and start token, and its card.

The card of a model is a JSON file in the data folder that records these facts.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

from audit_pipeline.config.problems import InvalidEntryError
from audit_pipeline.config.validation import validate_as
from audit_pipeline.errors import ModelError, ModelFilesWarning
from audit_pipeline.models.config import ModelEntry, build_adapter_base, load_models, resolve_model
from audit_pipeline.models.converted_files import (
    TextTokenizer,
    converted_weights_folder,
    read_tokenizer,
    stored_tokenizer_folder,
)
from audit_pipeline.models.display_title import format_model_title, read_gguf_format
from audit_pipeline.models.fingerprint import ModelIdentity, entry_version, history_path, identify, read_history
from audit_pipeline.models.locate import LocatedModel, locate
from audit_pipeline.models.model_files import Quantisation, choose_weight_files, read_quantisation
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.store.files import read_json, read_json_if_whole, write_json
from audit_pipeline.store.paths import DataPaths, explain_unwritable


class KnownModel(Protocol):
    """The properties of a model that determine its token statistics."""

    @property
    def entry(self) -> ModelEntry:
        """Return the entry of the model."""
        ...

    @property
    def identity(self) -> ModelIdentity:
        """Return the digests of the model."""
        ...

    @property
    def start_token(self) -> str | None:
        """Return the start token, or None."""
        ...

    @property
    def context_length(self) -> int:
        """Return the maximum number of tokens per pass."""
        ...


@dataclass(frozen=True)
class TokenizedModel:
    """A model whose tokenizer is loaded, but whose weights are not in memory.

    Attributes:
        located: Its entry and files.
        identity: Its digests.
        tokenizer: Its tokenizer.
        start_token: Token before every text, or None.
        start_token_id: Id of the start token, or None.
        context_length: Maximum number of tokens per pass.
        vocab_size: Number of token ids of the model.
        config_folder: Folder of its config.json.
        weights_folder: Folder of its weights. For a .gguf, the folder of the converted weights, which may not exist
            yet.
    """

    located: LocatedModel
    identity: ModelIdentity
    tokenizer: TextTokenizer
    start_token: str | None
    start_token_id: int | None
    context_length: int
    vocab_size: int
    config_folder: Path
    weights_folder: Path

    @property
    def entry(self) -> ModelEntry:
        """Return the entry of the model."""
        return self.located.entry

    def has_statistic(self, statistic: str) -> bool:
        """Return True if the back end computes a statistic for every token.

        Args:
            statistic: Name of the statistic, as in CachedKind.statistics.
        """
        return self.entry.host.can_give(statistic)

    @property
    def quantisation(self) -> Quantisation | None:
        """Return the number format of quantised weights on this machine. None for plain weights and for a .gguf."""
        if self.located.gguf is not None:
            return None
        return read_quantisation(self.config_folder)

    @cached_property
    def position_border(self) -> int | None:
        """Return the length in tokens beyond which LongRoPE encodes all positions in another way, or None."""
        return read_position_border(self.config_folder / "config.json")

    @property
    def weights_format(self) -> str | None:
        """Return a description of the number format of quantised weights on this machine, or None for plain weights."""
        if self.located.gguf is not None:
            return read_gguf_format(self.located.gguf)
        if self.quantisation is None:
            return None
        return str(self.quantisation)


def read_position_border(config: Path) -> int | None:
    """Return the maximum length that LongRoPE encodes with its short factors, from a config.json, or None.

    Dynamic NTK scaling changes beyond max_position_embeddings. This is the context length, which no input exceeds.
    """
    try:
        fields = read_json(config)
    except (OSError, ValueError):
        # A model at an endpoint may have no config.json. The code that loads a model reports a damaged file.
        return None
    if not isinstance(fields, dict):
        return None
    text = {**fields, **(fields.get("text_config") or {})}
    # transformers before version 5 used the keys rope_scaling and type. Its first name for the encoding was su.
    encoding = text.get("rope_parameters") or text.get("rope_scaling") or {}
    if not isinstance(encoding, dict):
        return None
    layers = [encoding, *(value for value in encoding.values() if isinstance(value, dict))]
    for layer in layers:
        if (layer.get("rope_type") or layer.get("type")) in ("longrope", "su"):
            key = "original_max_position_embeddings"
            length = text.get(key) or layer.get(key)
            if length:
                return int(length)
            return None
    return None


def is_tokenizer_stored(entry: ModelEntry, paths: DataPaths) -> bool:
    """Return True if the model's tokenizer is stored on disk. Reading it then takes no time and writes nothing."""
    folder = stored_tokenizer_folder(identify(locate(entry, paths), paths), paths)
    return not entry.trust_remote_code and read_tokenizer(folder) is not None


def load_tokenized(entry: ModelEntry, paths: DataPaths) -> TokenizedModel:
    """Locate and identify a model, and read its tokenizer and configuration.

    The first call reads them with transformers, which takes seconds for a .gguf. The result is stored in the data
    folder. Its key covers the digests of the files and the versions of the packages. In a read-only folder, every call
    reads them again.

    Raises:
        ModelError: If a file is missing or damaged, or if the entry does not fit the model.
    """
    located = locate(entry, paths)
    identity = identify(located, paths)
    _warn_about_unread_weights(located)
    folder = located.folder
    if entry.card is None:
        folder = stored_tokenizer_folder(identity, paths)
    converted = None
    # With trust_remote_code, the tokenizer may run code of the model, which no digest covers. So nothing is stored.
    if not entry.trust_remote_code:
        converted = read_tokenizer(folder)
    if converted is None and entry.card is not None:
        raise ModelError(
            f"the stored tokenizer of {entry.name} is damaged: {folder}. Replace this folder by the folder of the same "
            "name from the data folder in which the model ran."
        )
    if converted is None:
        # transformers and torch take seconds to import.
        from audit_pipeline.models.conversion import convert_tokenizer  # noqa: PLC0415

        can_store = not entry.trust_remote_code and explain_unwritable(paths.root) is None
        converted = convert_tokenizer(located, store_in=folder if can_store else None)
    start_token = entry.start_token or converted.default_start_token
    start_token_id = None
    if start_token is not None:
        start_token_id = converted.tokenizer.find_id(start_token)
    if start_token is not None and start_token_id is None:
        raise ModelError(
            f"{entry.name}: the start token {start_token} is not in the tokenizer's vocabulary. Set another "
            "start_token in config/models.yaml."
        )
    if start_token_id is None and entry.start_token_policy == "always":
        raise ModelError(f"{entry.name} has no bos and no eos token. Set start_token in config/models.yaml.")
    if entry.start_token_policy == "always" and start_token_id is not None and start_token_id >= converted.vocab_size:
        raise ModelError(
            f"{entry.name}: the start token {start_token} has the id {start_token_id}, but the model has only "
            f"{converted.vocab_size} ids. Set another start_token in config/models.yaml."
        )
    context_length = converted.context_length or entry.window
    if context_length is None:
        raise ModelError(
            f"{entry.name}: the folder of its tokenizer has no config.json, so its context length is unknown. "
            "Set window in the entry of the model in config/models.yaml."
        )
    weights_folder = located.folder
    if located.gguf is not None and entry.endpoint is None:
        weights_folder = converted_weights_folder(identity, entry.dtype, paths)
    return TokenizedModel(
        located=located,
        identity=identity,
        tokenizer=converted.tokenizer,
        start_token=start_token,
        start_token_id=start_token_id,
        context_length=context_length,
        vocab_size=converted.vocab_size,
        config_folder=located.folder if located.gguf is None else folder,
        weights_folder=weights_folder,
    )


def _warn_about_unread_weights(located: LocatedModel) -> None:
    """Warn if the folder holds weights that are not read."""
    if located.gguf is not None or located.entry.endpoint is not None or located.entry.card is not None:
        return
    weights = choose_weight_files(located.folder, located.entry.name)
    unread = weights.list_ignored_weight_files(compare_times=located.commit is None)
    if unread:
        warnings.warn(ModelFilesWarning(weights.describe_choice(unread, located.entry.name)), stacklevel=2)


def write_card(tokenized: TokenizedModel, paths: DataPaths, parameters: int | None = None) -> None:
    """Write the facts about a model to data/models/<fingerprint>.json, unless they are unchanged.

    A later call replaces the facts. It keeps the date of the first load, and the earlier number of parameters if
    ``parameters`` is None. A model at an endpoint has no card before its first probe, because its identity is unknown.
    """
    if tokenized.identity.is_unprobed:
        return
    path = paths.model_card(tokenized.identity.model_fingerprint)
    earlier = read_json_if_whole(path) or {}
    entry = tokenized.entry
    weights_format = None
    settings: dict[str, object] = dict.fromkeys(("dtype", "attention", "compile"))
    if entry.endpoint is None:
        weights_format = tokenized.weights_format
        settings = {"dtype": entry.dtype, "attention": entry.attention, "compile": entry.compile}
    dates: dict[str, str | None] = {}
    for name in ("release_date", "training_cutoff"):
        day = getattr(entry, name)
        dates[name] = day.isoformat() if day else None
    card = {
        "fingerprint": tokenized.identity.model_fingerprint,
        "name": entry.name,
        "resolved_from": tokenized.located.resolved_from,
        "revision": tokenized.located.commit or entry.revision,
        **settings,
        "weights_digest": tokenized.identity.weights_digest,
        "adapter_digest": tokenized.identity.adapter_digest,
        "weights_format": weights_format,
        "title": format_model_title(entry, weights_format),
        "tokenizer_fingerprint": tokenized.identity.tokenizer_fingerprint,
        "start_token": tokenized.start_token,
        "start_token_id": tokenized.start_token_id,
        "start_token_policy": entry.start_token_policy,
        "entry_version": entry_version(entry),
        "context_length": tokenized.context_length,
        "vocab_size": tokenized.vocab_size,
        "parameters": parameters or earlier.get("parameters"),
        **dates,
        "licence": entry.licence,
        "first_loaded_at": earlier.get("first_loaded_at") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if entry.endpoint is not None:
        card |= _describe_endpoint(entry.endpoint, tokenized.identity, paths)
    if card != earlier:
        write_json(path, card)


def _describe_endpoint(endpoint: Endpoint, identity: ModelIdentity, paths: DataPaths) -> dict[str, object]:
    history = read_history(endpoint, identity.tokenizer_fingerprint, paths)
    address = {f"endpoint_{name}": getattr(endpoint, name) for name in ("url", "model", "revision", "dialect")}
    return {
        "backend": "openai",
        **address,
        "state": history.names[-1],
        "endpoint": history_path(endpoint, identity.tokenizer_fingerprint, paths).stem,
        "server": history.server,
        "largest_n": endpoint.top_logprobs,
    }


def load_reference_model(model: TokenizedModel, paths: DataPaths) -> TokenizedModel | None:
    """Return the model that detectors compare a model with, or None.

    This is the entry's ``reference_model``, or else its default (:func:`find_default_reference`).

    Raises:
        ConfigError: If the entry of the reference model is broken.
        ModelError: If the reference model cannot be loaded, or is the model itself.
    """
    name = model.entry.detector_reference
    if name is None:
        return None
    models = load_models()
    is_default = model.entry.reference_model is None and model.entry.base is None
    if is_default and model.entry.adapter is not None and name not in models:
        base = build_adapter_base(model.entry, name)
        if base.hub is not None:
            # The base of the loaded adapter is at this commit, even if the branch has moved since.
            base = base.model_copy(update={"revision": model.located.commit})
        return load_tokenized(base, paths)
    reference = load_tokenized(resolve_model(name, models), paths)
    if reference.identity.model_fingerprint == model.identity.model_fingerprint:
        raise ModelError(
            f"the reference model of {model.entry.name} is the model itself. Choose another reference_model."
        )
    return reference


def build_reference_upstream(reference: TokenizedModel | None) -> Mapping[str, str]:
    """Return the lineage fields of a reference model: its name with its fingerprints."""
    if reference is None:
        return {}
    identity = reference.identity
    return {f"reference_model/{reference.entry.name}": f"{identity.model_fingerprint}/{identity.tokenizer_fingerprint}"}


def apply_overrides(
    entry: ModelEntry,
    *,
    dtype: str | None = None,
    start_token_policy: str | None = None,
    reference_model: str | None = None,
) -> ModelEntry:
    """Return ``entry`` with the settings that the command line overrides. None keeps a setting.

    Raises:
        ModelError: If the changed entry is invalid.
    """
    changes = {"dtype": dtype, "start_token_policy": start_token_policy, "reference_model": reference_model}
    overrides = {key: value for key, value in changes.items() if value is not None}
    try:
        changed = validate_as(ModelEntry, {**entry.model_dump(exclude_unset=True), **overrides})
    except InvalidEntryError as error:
        raise ModelError(f"{entry.name}: {error}") from error
    # model_dump omits the keys that users do not write.
    return changed.model_copy(update={"checkpoint": entry.checkpoint, "default_reference": entry.default_reference})
