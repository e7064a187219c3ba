"""Stored copies of model files that load quickly: tokenizers, and the converted weights of .gguf files."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer

from audit_pipeline.errors import RebuiltWarning
from audit_pipeline.models.fingerprint import ModelIdentity
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.integrity import DamagedError, digests_of_folder, require_matching_digests
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest


@dataclass(frozen=True)
class TextTokenizer:
    """A fast tokenizer without padding and truncation.

    Attributes:
        backend: The tokenizer object of the package ``tokenizers``.
        special_ids: Ids of the special tokens (:func:`conversion.list_special_ids`).
    """

    backend: Tokenizer = field(repr=False)
    special_ids: frozenset[int]

    def __len__(self) -> int:
        """Return the number of ids, including added tokens."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def encode(
        self, texts: Sequence[str], *, add_special_tokens: bool, special_as_text: bool = False
    ) -> list[Encoding]:
        """Return ids, character offsets and special-token marks of each text.

        Args:
            texts: The texts.
            add_special_tokens: Add the special tokens that the tokenizer adds by default.
            special_as_text: True if a special token that is spelled out in a text is read as ordinary characters.
        """
        before = self.backend.encode_special_tokens
        self.backend.encode_special_tokens = special_as_text or before
        try:
            encoded: list[Encoding] = self.backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        finally:
            self.backend.encode_special_tokens = before
        return encoded

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, special tokens included."""
        return str(self.backend.decode(list(ids), skip_special_tokens=False))

    def find_id(self, token: str) -> int | None:
        """Return the id of a token, or None for an unknown token."""
        token_id: int | None = self.backend.token_to_id(token)
        return token_id

    def find_token(self, number: int) -> str | None:
        """Return the token of an id in the tokenizer's spelling, or None for an unused id."""
        token: str | None = self.backend.id_to_token(number)
        return token


TOKENIZER_FILE = "tokenizer.json"
# The manifest describes the stored content and holds the digests of the other files.
STORED_MANIFEST = "kept.json"
# Version of the written files. After a change, all models are converted again.
_FORM = 2
_LENGTH = 24


@dataclass(frozen=True)
class StoredTokenizer:
    """A tokenizer, and the fields of the model's configuration that scoring needs.

    Attributes:
        tokenizer: The tokenizer.
        default_start_token: Start token if the model's entry names none.
        context_length: Maximum number of tokens, or None without a config.json.
        vocab_size: Number of token ids of the model.
    """

    tokenizer: TextTokenizer
    default_start_token: str | None
    context_length: int | None
    vocab_size: int


def stored_tokenizer_folder(identity: ModelIdentity, paths: DataPaths) -> Path:
    """Return the folder of a model's stored tokenizer. It changes with the model's files and with package versions."""
    packages = [version(name) for name in ("transformers", "tokenizers", "gguf")]
    form = digest(_FORM, identity.config_digest, *packages)[:_LENGTH]
    return paths.stored_tokenizers(identity.tokenizer_fingerprint) / form


def conversion_folder(weights_digest: str, paths: DataPaths) -> Path:
    """Return the folder of all conversions of one .gguf."""
    return paths.converted_models(weights_digest[:_LENGTH])


def converted_weights_folder(identity: ModelIdentity, dtype: str, paths: DataPaths) -> Path:
    """Return the folder of a .gguf's converted weights. It changes with the file, the dtype and package versions."""
    assert identity.weights_digest is not None, "weights that are elsewhere are not converted"
    packages = [version(name) for name in ("transformers", "gguf", "torch")]
    return conversion_folder(identity.weights_digest, paths) / digest(_FORM, dtype, packages)[:_LENGTH]


def store_tokenizer(folder: Path, tokenizer: StoredTokenizer, save_config: Callable[[Path], object] | None) -> None:
    """Write a tokenizer into ``folder``. If ``save_config`` is given, it also writes the configuration."""
    backend = tokenizer.tokenizer.backend

    def write(aside: Path) -> None:
        (aside / TOKENIZER_FILE).write_text(backend.to_str(), encoding="utf-8")
        if save_config is not None:
            save_config(aside)

    summary = {
        "default_start_token": tokenizer.default_start_token,
        "context_length": tokenizer.context_length,
        "vocab_size": tokenizer.vocab_size,
        "special_ids": sorted(tokenizer.tokenizer.special_ids),
        "splits_special_tokens": backend.encode_special_tokens,
    }
    store_folder(folder, write, summary)


def store_folder(folder: Path, write: Callable[[Path], object], content: Mapping[str, object]) -> None:
    """Create ``folder`` with the files that ``write`` writes into a folder, and with a manifest.

    The files are written into a temporary folder, which is then renamed. So ``folder`` is complete or absent. If
    another process has created it meanwhile, its copy stays. A damaged copy is replaced.

    Args:
        folder: Folder to create.
        write: Function that writes files into the folder that it receives.
        content: Fields of the manifest.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        write(aside)
        write_json(aside / STORED_MANIFEST, {**content, "files": digests_of_folder(aside)})
        if read_manifest_if_whole(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_tokenizer(folder: Path) -> StoredTokenizer | None:
    """Return the tokenizer stored in ``folder``, or None if it is missing or damaged. Damage also causes a warning."""
    summary = read_manifest_if_whole(folder)
    if summary is None:
        return None
    backend = Tokenizer.from_str((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    backend.encode_special_tokens = summary["splits_special_tokens"]
    return StoredTokenizer(
        TextTokenizer(backend, frozenset(summary["special_ids"])),
        summary["default_start_token"],
        summary["context_length"],
        summary["vocab_size"],
    )


def list_stored_folders(paths: DataPaths) -> list[Path]:
    """Return the folders of all stored tokenizers and converted weights, of all package versions, in order."""
    roots = {paths.stored_tokenizers("any").parent, paths.converted_models("any").parent}
    return sorted(manifest.parent for root in roots for manifest in root.glob(f"*/*/{STORED_MANIFEST}"))


def read_intact_manifest(folder: Path) -> Mapping[str, Any]:
    """Return the manifest of a folder of :func:`list_stored_folders`.

    Raises:
        DamagedError: If a file does not match its digest in the manifest.
        FileNotFoundError: If the manifest is missing.
    """
    manifest: dict[str, Any] = read_json(folder / STORED_MANIFEST)
    if not (isinstance(manifest, dict) and isinstance(manifest.get("files"), dict)):
        raise DamagedError(f"{folder / STORED_MANIFEST} is damaged: it lists no files")
    require_matching_digests(folder, manifest["files"], "the stored copy of a model")
    return manifest


def read_manifest_if_whole(folder: Path) -> Mapping[str, Any] | None:
    """Return the manifest of a folder, or None if it is missing or a file is damaged.

    Damage also causes a warning. See :func:`read_intact_manifest`.
    """
    try:
        return read_intact_manifest(folder)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(RebuiltWarning(f"{error}. The stored copy is rebuilt."), stacklevel=2)
        return None
