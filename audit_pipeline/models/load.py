"""Reading tokenizers and weights with transformers, and the card that says what was loaded.

What belongs here: from_pretrained and what surrounds it. What does not: running the model (token_statistics/).
"""

from __future__ import annotations

import struct
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from audit_pipeline.contracts import digest
from audit_pipeline.errors import ModelError
from audit_pipeline.integrity import digests_of_folder, require_folder
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import Identity, identify
from audit_pipeline.models.locate import LocatedModel, locate
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import read_json, write_json

_FAMILY_START_TOKENS = {
    "gpt_neox": "<|endoftext|>",
    "qwen2": "<|endoftext|>",
    "opt": "<s>",
    "llama": "<s>",
    "baichuan": "</s>",
}
_SUMMARY = "model_summary.json"
_READ_ERRORS = (OSError, ValueError, KeyError, IndexError, RuntimeError, struct.error, SafetensorError)


@dataclass(frozen=True)
class TokenizedModel:
    """A model that is known but not in memory: its identity, its tokenizer and its start token.

    All that planning, cache look-ups and scoring from the cache need; loading it takes a fraction of a second.
    """

    located: LocatedModel
    identity: Identity
    tokenizer: PreTrainedTokenizerBase
    start_token: str | None
    start_token_id: int | None
    context_length: int
    vocab_size: int

    config_folder: Path

    @property
    def entry(self) -> ModelEntry:
        return self.located.entry


def default_device() -> str:
    """'cuda' where there is one, else 'cpu'."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def load_tokenizer(entry: ModelEntry, paths: DataPaths) -> TokenizedModel:
    """Locate and identify the model and read its tokenizer and configuration, not its weights.

    A tokenizer inside a .gguf takes seconds to convert: the conversion is kept under the data folder, keyed by the
    file's digest and the version of transformers. Raises ModelError where any of it cannot be had.
    """
    located = locate(entry, paths)
    identity = identify(located, paths)
    if located.gguf is not None:
        folder = paths.tokenizer_cache(digest(identity.tokenizer_fingerprint, transformers.__version__)[:24])
        tokenizer, config = _from_gguf(located, folder)
    else:
        folder = located.folder
        tokenizer, config = _from_folder(located)
    if not tokenizer.is_fast:
        raise ModelError(f"{entry.name} has no fast tokenizer (tokenizer.json): character offsets need one")
    start_token = entry.start_token or _default_start_token(tokenizer, str(config["model_type"]))
    start_token_id = _token_id(tokenizer, start_token, entry.name)
    if start_token_id is None and entry.start_token_policy == "always":
        raise ModelError(f"{entry.name} has no bos and no eos token: name a start_token in config/models.yaml")
    return TokenizedModel(
        located=located,
        identity=identity,
        tokenizer=tokenizer,
        start_token=start_token,
        start_token_id=start_token_id,
        context_length=int(config["context_length"]),
        vocab_size=int(config["vocab_size"]),
        config_folder=folder,
    )


def _from_folder(located: LocatedModel) -> tuple[PreTrainedTokenizerBase, dict[str, Any]]:
    try:
        options = {"trust_remote_code": located.entry.trust_remote_code}
        config = AutoConfig.from_pretrained(located.folder, **options)
        tokenizer = AutoTokenizer.from_pretrained(located.folder, **options)
    except _READ_ERRORS as error:
        raise ModelError(_cannot_read(located, "tokenizer or config", error)) from error
    return tokenizer, _summary(config)


def _from_gguf(located: LocatedModel, folder: Path) -> tuple[PreTrainedTokenizerBase, dict[str, Any]]:
    """Tokenizer and configuration of a .gguf, converted into ``folder`` the first time."""
    assert located.gguf is not None
    summary_file = folder / _SUMMARY
    if summary_file.exists():
        try:
            summary = require_converted(folder)
        except ValueError as error:
            warnings.warn(f"{error}; it is converted anew", stacklevel=2)
            summary_file.unlink()
        else:
            return AutoTokenizer.from_pretrained(folder), summary
    try:
        config = AutoConfig.from_pretrained(located.folder, gguf_file=located.gguf.name)
        tokenizer = AutoTokenizer.from_pretrained(located.folder, gguf_file=located.gguf.name)
    except _READ_ERRORS as error:
        raise ModelError(_cannot_read(located, "tokenizer or config", error)) from error
    tokenizer.save_pretrained(folder)
    config.save_pretrained(folder)
    # Written last: it says that the folder is whole.
    write_json(summary_file, {**_summary(config), "files": digests_of_folder(folder)})
    return tokenizer, _summary(config)


def require_converted(folder: Path) -> dict[str, Any]:
    """What is kept of a converted model's configuration in ``folder``.

    Raises DamagedError where a file there is not as it was written, and json.JSONDecodeError.
    """
    summary: dict[str, Any] = read_json(folder / _SUMMARY)
    require_folder(folder, summary.get("files", {}), "a converted tokenizer")
    return summary


def _summary(config: Any) -> dict[str, Any]:
    text = config.get_text_config()
    context = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    if context is None or context < 1:
        # State-space models have no context limit; a window keeps memory bounded all the same.
        context = 4096
    return {"model_type": config.model_type, "context_length": int(context), "vocab_size": int(text.vocab_size)}


def _default_start_token(tokenizer: PreTrainedTokenizerBase, model_type: str) -> str | None:
    """The family's start token (paper 002) where the vocabulary has it as a special token, else bos, else eos."""
    family = _FAMILY_START_TOKENS.get(model_type)
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    if family is not None and family in special:
        return family
    fallback: str | None = tokenizer.bos_token or tokenizer.eos_token
    return fallback


def _token_id(tokenizer: PreTrainedTokenizerBase, token: str | None, name: str) -> int | None:
    if token is None:
        return None
    vocabulary = tokenizer.get_vocab()
    if token not in vocabulary:
        raise ModelError(f"{name}: the start token {token} is not in the tokenizer's vocabulary")
    return int(vocabulary[token])


def _cannot_read(located: LocatedModel, what: str, error: Exception) -> str:
    where = located.gguf or located.folder
    reason = " ".join(str(error).split())[:300]
    return f"the {what} of {located.entry.name} cannot be read; if {where} was cut short, fetch it again: {reason}"


def load_weights(tokenized: TokenizedModel, device: str) -> torch.nn.Module:
    """The model in evaluation mode on ``device``, in the entry's dtype.

    Raises ModelError where the weights are missing, cut short, or in a format that can run code.
    """
    located = tokenized.located
    entry = located.entry
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ModelError("no CUDA device is available: leave --device out or give --device cpu")
    transformers_logging.disable_progress_bar()
    # Dequantised always: whether a package with kernels for packed weights is installed must not change a score.
    gguf = (
        {}
        if located.gguf is None
        else {"gguf_file": located.gguf.name, "quantization_config": GgufConfig(dequantize=True)}
    )
    try:
        model, loading = AutoModelForCausalLM.from_pretrained(
            located.folder,
            dtype=getattr(torch, entry.dtype),
            # Left to itself transformers takes sdpa where the architecture has it, else eager (Gemma 2, Mamba); asked
            # for sdpa by name it refuses those architectures.
            attn_implementation=None if entry.attention == "sdpa" else entry.attention,
            trust_remote_code=entry.trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            **gguf,
        )
    except (*_READ_ERRORS, ImportError) as error:
        raise ModelError(_cannot_read(located, "weights", error)) from error
    if missing := sorted(loading["missing_keys"]):
        # transformers fills them with random numbers and goes on.
        raise ModelError(
            f"the weights of {entry.name} lack {len(missing)} tensors of the model, {missing[0]} first: "
            "the files are incomplete, fetch them again"
        )
    model = model.to(device).eval()
    model.requires_grad_(requires_grad=False)
    return model  # type: ignore[no-any-return]


def write_card(tokenized: TokenizedModel, paths: DataPaths, parameters: int | None = None) -> None:
    """Record what the fingerprint stands for (data/models/<fingerprint>.json); a second load changes nothing but
    what was not known before."""
    path = paths.model_card(tokenized.identity.model_fingerprint)
    earlier = _card_before(path)
    entry = tokenized.entry
    card = {
        "fingerprint": tokenized.identity.model_fingerprint,
        "name": entry.name,
        "resolved_from": tokenized.located.resolved_from,
        "revision": tokenized.located.commit or entry.revision,
        "dtype": entry.dtype,
        "attention": entry.attention,
        "weights_digest": tokenized.identity.weights_digest,
        "tokenizer_fingerprint": tokenized.identity.tokenizer_fingerprint,
        "start_token": tokenized.start_token,
        "start_token_id": tokenized.start_token_id,
        "start_token_policy": entry.start_token_policy,
        "context_length": tokenized.context_length,
        "vocab_size": tokenized.vocab_size,
        "parameters": parameters or earlier.get("parameters"),
        "release_date": entry.release_date.isoformat() if entry.release_date else None,
        "training_cutoff": entry.training_cutoff.isoformat() if entry.training_cutoff else None,
        "licence": entry.licence,
        "first_loaded_at": earlier.get("first_loaded_at") or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if card != earlier:
        write_json(path, card)


def _card_before(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        warnings.warn(f"{path} cannot be read and is written anew: {error}", stacklevel=2)
        return {}
    return card


def with_overrides(
    entry: ModelEntry,
    *,
    dtype: str | None = None,
    start_token_policy: str | None = None,
    reference_model: str | None = None,
) -> ModelEntry:
    """``entry`` as the command line changes it, validated again."""
    changes = {"dtype": dtype, "start_token_policy": start_token_policy, "reference_model": reference_model}
    given = {key: value for key, value in changes.items() if value is not None}
    return ModelEntry.model_validate({**entry.model_dump(), **given})
