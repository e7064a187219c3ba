"""What is known of a model without its weights: identity, tokenizer, start token; and the card that says it."""

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
from audit_pipeline.models.config import Endpoint, ModelEntry, load_models, resolve_model
from audit_pipeline.models.converted_files import (
    TextTokenizer,
    converted_weights_folder,
    kept_tokenizer_folder,
    read_tokenizer,
)
from audit_pipeline.models.display_title import format_model_title, read_gguf_format
from audit_pipeline.models.endpoint_history import history_path, read_history
from audit_pipeline.models.fingerprint import ModelIdentity, entry_version, identify
from audit_pipeline.models.locate import LocatedModel, locate
from audit_pipeline.models.quantisation import Quantisation, read_quantisation
from audit_pipeline.models.weight_files import choose_weight_files
from audit_pipeline.store.files import read_json, read_json_if_whole, write_json
from audit_pipeline.store.paths import DataPaths, explain_unwritable


class KnownModel(Protocol):
    """What decides the token statistics of a model: entry and files, start token, length of its context."""

    @property
    def entry(self) -> ModelEntry: ...

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def start_token(self) -> str | None: ...

    @property
    def context_length(self) -> int: ...


@dataclass(frozen=True)
class TokenizedModel:
    """A model that is known but not in memory: its identity, its tokenizer and its start token.

    ``config_folder`` holds its config.json; ``weights_folder`` is where its weights are read from: the located folder,
    or for a .gguf the folder that they are (or will be) converted into.
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
        return self.located.entry

    def has_statistic(self, statistic: str) -> bool:
        """Return whether the back end gives a statistic of every token, by the names of CachedKind.statistics."""
        return self.entry.host.can_give(statistic)

    @property
    def quantisation(self) -> Quantisation | None:
        """How the weights on this machine are packed in memory; None where they are plain, as those of a .gguf are."""
        return read_quantisation(self.config_folder) if self.located.gguf is None else None

    @cached_property
    def position_border(self) -> int | None:
        """Length in tokens beyond which the model encodes all positions of an input otherwise (LongRoPE); else None."""
        return read_position_border(self.config_folder / "config.json")

    @property
    def weights_format(self) -> str | None:
        """How the weights on this machine were published, in words; None where they are plain."""
        if self.located.gguf is not None:
            return read_gguf_format(self.located.gguf)
        return str(self.quantisation) if self.quantisation is not None else None


def read_position_border(config: Path) -> int | None:
    """Return the length up to which a config.json's LongRoPE takes its short factors; None for other encodings.

    Dynamic NTK scaling changes beyond max_position_embeddings, which is the context length: no input is that long.
    """
    try:
        fields = read_json(config)
    except (OSError, ValueError):
        # A model at an endpoint may have no config.json; whoever loads a model reports a damaged one.
        return None
    text = {**fields, **(fields.get("text_config") or {})} if isinstance(fields, dict) else {}
    # transformers before version 5 wrote rope_scaling and type, and called the encoding su at first.
    encoding = text.get("rope_parameters") or text.get("rope_scaling") or {}
    if not isinstance(encoding, dict):
        return None
    for layer in (encoding, *(value for value in encoding.values() if isinstance(value, dict))):
        if (layer.get("rope_type") or layer.get("type")) in ("longrope", "su"):
            lengths = (text.get("original_max_position_embeddings"), layer.get("original_max_position_embeddings"))
            return next((int(length) for length in lengths if length), None)
    return None


def is_tokenizer_kept(entry: ModelEntry, paths: DataPaths) -> bool:
    """Return whether the model's tokenizer has been kept, so that reading it takes no time and writes nothing."""
    folder = kept_tokenizer_folder(identify(locate(entry, paths), paths), paths)
    return not entry.trust_remote_code and read_tokenizer(folder) is not None


def load_tokenized(entry: ModelEntry, paths: DataPaths) -> TokenizedModel:
    """Locate and identify the model and read its tokenizer and configuration, not its weights.

    The first time transformers reads them, which takes seconds for a .gguf; the result is kept under the data folder,
    keyed by the files' digests and the versions of what reads them; where nothing can be written they are read again
    the next time. Raises ModelError where any of it is missing, and where the model cannot be divided as its entry
    says.
    """
    located = locate(entry, paths)
    identity = identify(located, paths)
    _name_unread_weights(located)
    folder = kept_tokenizer_folder(identity, paths) if entry.card is None else located.folder
    # Code of the model's own may be part of its tokenizer, and is in no digest.
    converted = None if entry.trust_remote_code else read_tokenizer(folder)
    if converted is None and entry.card is not None:
        raise ModelError(f"the tokenizer that is kept of {entry.name} is damaged: {folder}")
    if converted is None:
        # Imported where it is needed: transformers and torch take seconds to import.
        from audit_pipeline.models.conversion import convert_tokenizer  # noqa: PLC0415

        converted = convert_tokenizer(
            located, None if entry.trust_remote_code or explain_unwritable(paths.root) is not None else folder
        )
    start_token = entry.start_token or converted.default_start_token
    start_token_id = None if start_token is None else converted.tokenizer.find_id(start_token)
    if start_token is not None and start_token_id is None:
        raise ModelError(f"{entry.name}: the start token {start_token} is not in the tokenizer's vocabulary")
    if start_token_id is None and entry.start_token_policy == "always":
        raise ModelError(f"{entry.name} has no bos and no eos token: name a start_token in config/models.yaml")
    if entry.start_token_policy == "always" and start_token_id is not None and start_token_id >= converted.vocab_size:
        raise ModelError(
            f"{entry.name}: the start token {start_token} has the id {start_token_id}, and the model has "
            f"{converted.vocab_size}: name another start_token in config/models.yaml"
        )
    context_length = converted.context_length or entry.window
    if context_length is None:
        raise ModelError(
            f"{entry.name}: its tokenizer has no config.json next to it, so the length of its context is unknown: "
            "give window in its entry in config/models.yaml"
        )
    is_converted = located.gguf is not None and entry.endpoint is None
    return TokenizedModel(
        located=located,
        identity=identity,
        tokenizer=converted.tokenizer,
        start_token=start_token,
        start_token_id=start_token_id,
        context_length=context_length,
        vocab_size=converted.vocab_size,
        config_folder=located.folder if located.gguf is None else folder,
        weights_folder=converted_weights_folder(identity, entry.dtype, paths) if is_converted else located.folder,
    )


def _name_unread_weights(located: LocatedModel) -> None:
    """Warn if the folder holds other weights than those that are read."""
    if located.gguf is not None or located.entry.endpoint is not None or located.entry.card is not None:
        return
    weights = choose_weight_files(located.folder, located.entry.name)
    unread = weights.list_unread(compare_times=located.commit is None)
    if unread:
        warnings.warn(ModelFilesWarning(weights.describe_choice(unread, located.entry.name)), stacklevel=2)


def write_card(tokenized: TokenizedModel, paths: DataPaths, parameters: int | None = None) -> None:
    """Record what the fingerprint identifies (data/models/<fingerprint>.json); a second load only adds what was
    unknown before.

    Nothing is recorded of an endpoint's model before its first probe: it is not known which model it is.
    """
    path, endpoint = paths.model_card(tokenized.identity.model_fingerprint), tokenized.entry.endpoint
    if tokenized.identity.is_unasked:
        return
    earlier = read_json_if_whole(path) or {}
    entry = tokenized.entry
    weights_format = tokenized.weights_format if endpoint is None else None
    card = {
        "fingerprint": tokenized.identity.model_fingerprint,
        "name": entry.name,
        "resolved_from": tokenized.located.resolved_from,
        "revision": tokenized.located.commit or entry.revision,
        "dtype": entry.dtype if endpoint is None else None,
        "attention": entry.attention if endpoint is None else None,
        "compile": entry.compile if endpoint is None else None,
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
        "release_date": entry.release_date.isoformat() if entry.release_date else None,
        "training_cutoff": entry.training_cutoff.isoformat() if entry.training_cutoff else None,
        "licence": entry.licence,
        "first_loaded_at": earlier.get("first_loaded_at") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if endpoint is not None:
        card |= _card_of_endpoint(endpoint, tokenized.identity, paths)
    if card != earlier:
        write_json(path, card)


def _card_of_endpoint(endpoint: Endpoint, identity: ModelIdentity, paths: DataPaths) -> dict[str, object]:
    history = read_history(endpoint, identity.tokenizer_fingerprint, paths)
    card = {f"endpoint_{name}": getattr(endpoint, name) for name in ("url", "model", "revision", "dialect")}
    file = history_path(endpoint, identity.tokenizer_fingerprint, paths).stem
    found = {"endpoint": file, "server": history.server, "largest_n": endpoint.top_logprobs}
    return {"backend": "openai", **card, "state": history.names[-1], **found}


def load_reference_model(model: TokenizedModel, paths: DataPaths) -> TokenizedModel | None:
    """Return the reference model that a model's entry names; None where it names none.

    Raises ConfigError or ModelError where it cannot be had, and where it is the model itself.
    """
    if model.entry.reference_model is None:
        return None
    reference = load_tokenized(resolve_model(model.entry.reference_model, load_models()), paths)
    if reference.identity.model_fingerprint == model.identity.model_fingerprint:
        raise ModelError(f"the reference model of {model.entry.name} is the model itself: name another model")
    return reference


def build_reference_upstream(reference: TokenizedModel | None) -> Mapping[str, str]:
    """Return what lineage says of a reference model that was used: its name, its weights and its tokenizer."""
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
    """``entry`` as the command line changes it, validated again; raises ModelError where it cannot be."""
    changes = {"dtype": dtype, "start_token_policy": start_token_policy, "reference_model": reference_model}
    given = {key: value for key, value in changes.items() if value is not None}
    try:
        return validate_as(ModelEntry, {**entry.model_dump(exclude_unset=True), **given})
    except InvalidEntryError as error:
        raise ModelError(f"{entry.name}: {error}") from error
