"""Files in an adapter's folder, and what they declare about the adapter's base model and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from audit_pipeline.errors import ModelError
from audit_pipeline.store.files import read_json

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
MLX_WEIGHTS = "*adapters.safetensors"

_TOKENIZER = "tokenizer.json"
# Vocabulary files other than tokenizer.json. A folder with such a file has a tokenizer, even without tokenizer.json.
_VOCABULARIES = ("vocab.json", "vocab.txt", "tekken.json", "*.model")
# Fields of tokenizer.json that training code sets. They do not change the tokens of a single text.
_BATCH_FIELDS = ("version", "truncation", "padding")
_MLX_KEYS = ("fine_tune_type", "lora_parameters", "lora_layers")


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Return the fields of adapter_config.json.

    Raises:
        ModelError: If the file cannot be read, or belongs to an adapter of MLX.
    """
    path = folder / ADAPTER_CONFIG
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is no configuration of an adapter: it holds no fields")
    if config.get("peft_type") is None and any(key in config for key in _MLX_KEYS):
        raise build_mlx_error(folder)
    return config


def build_mlx_error(folder: Path) -> ModelError:
    """Return the error for an adapter that mlx-lm has trained."""
    return ModelError(
        f"{folder} holds an adapter of MLX (mlx-lm), which is not supported: merge it with its base (mlx_lm.fuse) and "
        "use the merged model, or convert it to peft"
    )


def read_base_revision(folder: Path) -> str | None:
    """Return the revision of the base that an adapter was trained on, or None if its configuration names none.

    Raises:
        ModelError: If adapter_config.json cannot be read, or its revision is not text.
    """
    revision = read_adapter_config(folder).get("revision")
    if revision is not None and not isinstance(revision, str):
        raise ModelError(f"{folder / ADAPTER_CONFIG}: revision {revision!r} is not the name of a revision")
    return revision or None


def find_own_tokenizer(adapter: Path, base: Path | None) -> Path | None:
    """Return the adapter's folder if its tokenizer gives other tokens than the base's tokenizer, else None.

    Chat templates, padding and truncation do not change the tokens of a text.

    Args:
        adapter: Folder of the adapter.
        base: Folder of its base. None if the base's tokenizer is in a .gguf, which cannot be compared.

    Raises:
        ModelError: If the folder declares added tokens that the base lacks, but holds no vocabulary.
    """
    present: list[str] = []
    for pattern in (_TOKENIZER, *_VOCABULARIES):
        files = sorted(adapter.glob(pattern))
        present += [file.name for file in files if file.is_file()]
    if not present:
        _require_no_further_tokens(adapter, base)
        return None
    if base is None:
        return adapter
    # A tokenizer.json holds the whole vocabulary, so no other vocabulary file is compared.
    compared = [_TOKENIZER]
    if _TOKENIZER not in present:
        compared = [*present, "merges.txt", "added_tokens.json"]
    for name in compared:
        if _read_content(adapter / name) != _read_content(base / name):
            return adapter
    if _read_declarations(adapter) not in ({}, _read_declarations(base)):
        return adapter
    return None


def _read_content(file: Path) -> object:
    """Return the part of a tokenizer file that determines the tokens of a text, or None if the file is missing.

    This is the content of a JSON file without batch settings, or the bytes of another file.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    if file.suffix != ".json":
        return content
    try:
        fields = json.loads(content)
    except ValueError:
        # The code that reads the tokenizer reports the damage.
        return content
    if file.name == _TOKENIZER and isinstance(fields, dict):
        return {key: value for key, value in fields.items() if key not in _BATCH_FIELDS}
    return fields


def _read_declarations(folder: Path) -> dict[str, object]:
    """Return the declarations in tokenizer_config.json: start and end tokens, if texts get them, and added tokens."""
    fields = _read_content(folder / "tokenizer_config.json")
    if not isinstance(fields, dict):
        return {}
    declared: dict[str, object] = {}
    for role in ("bos_token", "eos_token", "add_bos_token", "add_eos_token"):
        token = fields.get(role)
        if isinstance(token, dict):
            token = token.get("content", token)
        declared[role] = token
    added = fields.get("added_tokens_decoder")
    if isinstance(added, dict):
        declared["added_tokens"] = {number: token.get("content") for number, token in added.items()}
    return declared


def _require_no_further_tokens(adapter: Path, base: Path | None) -> None:
    added = _read_content(adapter / "added_tokens.json")
    if added and (base is None or added != _read_content(base / "added_tokens.json")):
        raise ModelError(
            f"{adapter / 'added_tokens.json'} declares tokens that its base does not have, and there is no "
            f"{_TOKENIZER} beside it: save the adapter's tokenizer into the folder again"
        )
