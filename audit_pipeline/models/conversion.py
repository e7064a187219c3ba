"""From a model's files to what loads at once: its tokenizer for the package `tokenizers`, a .gguf's weights."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from audit_pipeline.errors import ModelError
from audit_pipeline.models.gguf_files import read_gguf_tokenizer, require_whole_model
from audit_pipeline.models.kept_files import KeptTokenizer, TextTokenizer, keep_folder, keep_tokenizer
from audit_pipeline.models.locate import LocatedModel
from audit_pipeline.models.suitability import (
    build_read_error,
    require_known_architecture,
    require_usable,
    silence_transformers,
)
from audit_pipeline.models.tokenizer_files import list_special_ids, read_tokenizer_files
from audit_pipeline.store.files import read_json

READ_ERRORS = (
    *(OSError, ValueError, KeyError, IndexError, RuntimeError, TypeError, AttributeError, ArithmeticError),
    *(struct.error, SafetensorError, StrictDataclassError),
)
"""What transformers raises of files that it cannot read."""

_FAMILY_START_TOKENS = {
    "gpt_neox": "<|endoftext|>",
    "qwen2": "<|endoftext|>",
    "opt": "<s>",
    "llama": "<s>",
    "baichuan": "</s>",
}


def convert_tokenizer(located: LocatedModel, folder: Path | None) -> KeptTokenizer:
    """Read tokenizer and configuration with transformers and keep them in ``folder``; None keeps nothing.

    Raises ModelError where they cannot be read, or the tokenizer is not a fast one.
    """
    tokenizer, config = read_with_transformers(located)
    if not tokenizer.is_fast:
        raise ModelError(f"{located.entry.name} has no fast tokenizer (tokenizer.json): character offsets need it")
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.no_truncation()
    text = config.get_text_config()
    context = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    converted = KeptTokenizer(
        TextTokenizer(backend, list_special_ids(tokenizer)),
        default_start_token=_default_start_token(tokenizer, str(config.model_type)),
        context_length=int(context)
        if context and context >= 1
        else _NO_LIMIT
        if located.entry.endpoint is None
        else None,
        vocab_size=int(text.vocab_size),
    )
    if folder is not None:
        keep_tokenizer(folder, converted, None if located.gguf is None else config.save_pretrained)
    return converted


def read_with_transformers(located: LocatedModel) -> tuple[PreTrainedTokenizerBase, Any]:
    """Tokenizer and configuration as transformers reads them; raises ModelError where it cannot."""
    entry, folder = located.entry, located.folder
    trusted = entry.trust_remote_code
    source = located.gguf or folder
    try:
        with silence_transformers(), cache_gguf_parsing():
            if located.gguf is not None:
                fields = require_whole_model(located.gguf, entry.name)
                config = AutoConfig.from_pretrained(folder, gguf_file=located.gguf.name)
                require_usable(config, entry.name)
                return read_gguf_tokenizer(located.gguf, fields), config
            if entry.endpoint is not None:
                tokenizer = read_tokenizer_files(folder, entry.name, trust_remote_code=trusted)
                return tokenizer, _read_endpoint_config(located, len(tokenizer))
            require_known_architecture(read_json(folder / "config.json"), entry.name)
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
            require_usable(config, entry.name)
            return read_tokenizer_files(folder, entry.name, trust_remote_code=trusted), config
    except READ_ERRORS as error:
        raise build_read_error(entry.name, source, "tokenizer or config", error) from error


@contextmanager
def cache_gguf_parsing() -> Iterator[None]:
    """Meanwhile the package gguf remembers what it has parsed.

    transformers parses a .gguf again for each of configuration, tokenizer and weights, and builds the table of tensor
    names again for every module: more than half of the time that a conversion takes.
    """
    originals = gguf.GGUFReader, gguf.get_tensor_name_map
    gguf.GGUFReader, gguf.get_tensor_name_map = (functools.cache(function) for function in originals)
    try:
        yield
    finally:
        gguf.GGUFReader, gguf.get_tensor_name_map = originals


def keep_weights(model: PreTrainedModel, located: LocatedModel, folder: Path) -> None:
    """Write the weights and configuration of a model out of a .gguf into ``folder``, as safetensors."""
    if hasattr(model.config, "quantization_config"):
        # What is saved are plain weights.
        del model.config.quantization_config
    keep_folder(
        folder, lambda aside: model.save_pretrained(aside, safe_serialization=True), {"made_of": located.resolved_from}
    )


def _read_endpoint_config(located: LocatedModel, tokens: int) -> Any:
    """Return what a config.json next to a tokenizer says, if any: the server knows the model's
    architecture, transformers need not. Without one the vocabulary is the tokenizer's."""
    config = read_json(located.folder / "config.json") if located.has_config else {}
    text = SimpleNamespace(**{"vocab_size": tokens, **config, **(config.get("text_config") or {})})
    return SimpleNamespace(model_type=config.get("model_type"), get_text_config=lambda: text)


# State-space models have no limit; a window keeps memory bounded.
_NO_LIMIT = 4096


def _default_start_token(tokenizer: PreTrainedTokenizerBase, model_type: str) -> str | None:
    """Return the family's start token (Zhang et al. 2024) where it is special in the vocabulary, else bos, else eos."""
    family = _FAMILY_START_TOKENS.get(model_type)
    special = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    if family is not None and family in special:
        return family
    fallback: str | None = tokenizer.bos_token or tokenizer.eos_token
    return fallback
