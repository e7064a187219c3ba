"""What is kept of a model's files in a form that loads at once: its tokenizer, and the weights out of a .gguf."""

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
    """A fast tokenizer that neither pads nor cuts; ``special_ids`` are the tokens that no text is made of."""

    backend: Tokenizer = field(repr=False)
    special_ids: frozenset[int]

    def __len__(self) -> int:
        """Return how many ids there are, those of added tokens included."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def encode(
        self, texts: Sequence[str], *, add_special_tokens: bool, special_as_text: bool = False
    ) -> list[Encoding]:
        """Ids, character offsets and special-token marks of each text.

        ``special_as_text``: a special token that a text spells is read as ordinary characters.
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
        """Return the id of a token; None where there is no such token."""
        found: int | None = self.backend.token_to_id(token)
        return found

    def find_token(self, number: int) -> str | None:
        """Return the token of an id as the tokenizer writes it; None for an unused id."""
        found: str | None = self.backend.id_to_token(number)
        return found


TOKENIZER_FILE = "tokenizer.json"
# It says what is kept, with the digests of the other files.
KEPT_MANIFEST = "kept.json"
# The version of what is written here; another one converts again.
_FORM = 2
_LENGTH = 24


@dataclass(frozen=True)
class KeptTokenizer:
    """A tokenizer, and what else of the model's configuration scoring needs."""

    tokenizer: TextTokenizer
    default_start_token: str | None
    context_length: int | None
    """None: no config.json says it."""
    vocab_size: int


def kept_tokenizer_folder(identity: ModelIdentity, paths: DataPaths) -> Path:
    """Return the folder of a model's kept tokenizer: its files and configuration decide, and what reads them."""
    form = digest(_FORM, identity.config_digest, *(version(name) for name in ("transformers", "tokenizers", "gguf")))[
        :_LENGTH
    ]
    return paths.kept_tokenizers(identity.tokenizer_fingerprint) / form


def conversion_folder(weights_digest: str, paths: DataPaths) -> Path:
    """Return the folder of all that the weights of one .gguf were converted into."""
    return paths.converted_models(weights_digest[:_LENGTH])


def converted_weights_folder(identity: ModelIdentity, dtype: str, paths: DataPaths) -> Path:
    """Return the folder of a .gguf's converted weights: its bytes, the dtype and what converts it decide."""
    assert identity.weights_digest is not None, "weights that are elsewhere are not converted"
    packages = [version(name) for name in ("transformers", "gguf", "torch")]
    return conversion_folder(identity.weights_digest, paths) / digest(_FORM, dtype, packages)[:_LENGTH]


def keep_tokenizer(folder: Path, tokenizer: KeptTokenizer, save_config: Callable[[Path], object] | None) -> None:
    """Write a tokenizer into ``folder``, and the model's configuration where ``save_config`` is given."""
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
    keep_folder(folder, write, summary)


def keep_folder(folder: Path, write: Callable[[Path], object], content: Mapping[str, object]) -> None:
    """Make ``folder``: what ``write`` writes into the one that it is given, and a manifest with ``content``.

    It is written next to its place and moved there, so it is whole or absent. Where another process was faster, its
    copy stays; a damaged copy is replaced.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        write(aside)
        write_json(aside / KEPT_MANIFEST, {**content, "files": digests_of_folder(aside)})
        if read_manifest_if_whole(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_tokenizer(folder: Path) -> KeptTokenizer | None:
    """Return the tokenizer kept in ``folder``; None where there is none, or, with a warning, where it is damaged."""
    summary = read_manifest_if_whole(folder)
    if summary is None:
        return None
    backend = Tokenizer.from_str((folder / TOKENIZER_FILE).read_text(encoding="utf-8"))
    backend.encode_special_tokens = summary["splits_special_tokens"]
    return KeptTokenizer(
        TextTokenizer(backend, frozenset(summary["special_ids"])),
        summary["default_start_token"],
        summary["context_length"],
        summary["vocab_size"],
    )


def list_kept_folders(paths: DataPaths) -> list[Path]:
    """Return the folders of all kept tokenizers and converted weights, of whatever version, in order."""
    roots = {paths.kept_tokenizers("any").parent, paths.converted_models("any").parent}
    return sorted(manifest.parent for root in roots for manifest in root.glob(f"*/*/{KEPT_MANIFEST}"))


def read_intact_manifest(folder: Path) -> Mapping[str, Any]:
    """Return what the manifest of one of :func:`list_kept_folders` says.

    Raises DamagedError where a file there is not as it was written, and FileNotFoundError.
    """
    manifest: dict[str, Any] = read_json(folder / KEPT_MANIFEST)
    if not (isinstance(manifest, dict) and isinstance(manifest.get("files"), dict)):
        raise DamagedError(f"{folder / KEPT_MANIFEST} is damaged: it names no files")
    require_matching_digests(folder, manifest["files"], "what is kept of a model")
    return manifest


def read_manifest_if_whole(folder: Path) -> Mapping[str, Any] | None:
    """As :func:`read_intact_manifest`; None where there is none, or, with a warning, where a file is damaged."""
    try:
        return read_intact_manifest(folder)
    except FileNotFoundError:
        return None
    except ValueError as error:
        warnings.warn(RebuiltWarning(f"{error}; it is made again"), stacklevel=2)
        return None
