"""What is kept of a model's files in a form that loads at once: its tokenizer, and the weights out of a .gguf.

What belongs here: where it lies, reading it, and telling whether it is whole. What does not: making it (convert.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from audit_pipeline.contracts import digest
from audit_pipeline.models.fingerprint import Identity
from audit_pipeline.models.tokenizer import TextTokenizer
from audit_pipeline.paths import DataPaths
from audit_pipeline.tables import write_json

TOKENIZER_FILE = "tokenizer.json"
_SUMMARY, _MANIFEST = "summary.json", "converted.json"
# The version of what is written here; another one converts anew.
_FORM = 1
_LENGTH = 24


@dataclass(frozen=True)
class KeptTokenizer:
    """A tokenizer, and what else of the model's configuration scoring needs."""

    tokenizer: TextTokenizer
    default_start_token: str | None
    context_length: int
    vocab_size: int


def kept_tokenizer(identity: Identity, paths: DataPaths) -> Path:
    """The folder of a model's kept tokenizer: its files and configuration decide, and what reads them."""
    form = digest(_FORM, identity.config_digest, version("transformers"), version("tokenizers"))[:_LENGTH]
    return paths.kept_tokenizers(identity.tokenizer_fingerprint) / form


def converted_of(weights_digest: str, paths: DataPaths) -> Path:
    """The folder of all that the weights of one .gguf were converted into."""
    return paths.converted_models(weights_digest[:_LENGTH])


def converted_weights(identity: Identity, dtype: str, paths: DataPaths) -> Path:
    """The folder of the weights that a .gguf is converted into: its bytes, the dtype and what converts it decide."""
    packages = [version(name) for name in ("transformers", "gguf", "torch")]
    return converted_of(identity.weights_digest, paths) / digest(_FORM, dtype, packages)[:_LENGTH]


def keep_tokenizer(
    folder: Path, tokenizer: TextTokenizer, *, default_start_token: str | None, context_length: int, vocab_size: int
) -> KeptTokenizer:
    """Write a tokenizer into ``folder``; its summary comes last and says that the folder is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    text = tokenizer.backend.to_str()
    (folder / TOKENIZER_FILE).write_text(text, encoding="utf-8")
    summary = {
        "default_start_token": default_start_token,
        "context_length": context_length,
        "vocab_size": vocab_size,
        "special_ids": sorted(tokenizer.special_ids),
        "splits_special_tokens": tokenizer.backend.encode_special_tokens,
        "tokenizer_sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    write_sealed(folder / _SUMMARY, summary)
    return KeptTokenizer(tokenizer, default_start_token, context_length, vocab_size)


def read_tokenizer(folder: Path) -> KeptTokenizer | None:
    """The tokenizer kept in ``folder``; None where there is none, or it is not what was written."""
    summary = read_sealed(folder / _SUMMARY)
    if summary is None:
        return None
    try:
        text = (folder / TOKENIZER_FILE).read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(text).hexdigest() != summary["tokenizer_sha256"]:
        return None
    backend = Tokenizer.from_str(text.decode())
    backend.encode_special_tokens = summary["splits_special_tokens"]
    return KeptTokenizer(
        TextTokenizer(backend, frozenset(summary["special_ids"])),
        summary["default_start_token"],
        summary["context_length"],
        summary["vocab_size"],
    )


def seal_weights(folder: Path, source: str) -> None:
    """Write the manifest of converted weights: every file's digest, and what they were made of."""
    files = {file.name: _sha256(file) for file in sorted(folder.iterdir()) if file.name != _MANIFEST}
    write_sealed(folder / _MANIFEST, {"made_of": source, "files": files})


def weights_are_whole(folder: Path) -> bool:
    """Whether ``folder`` holds converted weights, every byte as it was written."""
    manifest = read_sealed(folder / _MANIFEST)
    if manifest is None:
        return False
    try:
        return all(_sha256(folder / name) == sha256 for name, sha256 in manifest["files"].items())
    except FileNotFoundError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that carries a digest of itself."""
    write_json(path, {**content, "sha256": digest(content)})


def read_sealed(path: Path) -> Mapping[str, Any] | None:
    """The content of a file that :func:`write_sealed` wrote; None where it is missing or altered."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sha256 = content.pop("sha256")
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError, KeyError, AttributeError, TypeError):
        return None
    return content if sha256 == digest(content) else None
