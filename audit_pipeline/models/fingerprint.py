"""What a model is, independent of its name: digests that key the cache and stand in the lineage.

What belongs here: digests of weights, configuration and tokenizer files. What does not: loading them (load.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.integrity import file_sha256
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.tables import read_json_if_whole, write_json
from audit_pipeline.errors import ModelError
from audit_pipeline.models.locate import LocatedModel

_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
_VOLATILE_CONFIG = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
LENGTH = 24


@dataclass(frozen=True)
class ModelIdentity:
    """Digests of one model as it is run."""

    model_fingerprint: str
    tokenizer_fingerprint: str
    weights_digest: str
    config_digest: str


def identify(located: LocatedModel, paths: DataPaths) -> ModelIdentity:
    """The model's fingerprints: weights (or hub commit), config, dtype and attention back end; tokenizer files.

    Reads every byte of local weights once; the digest is remembered by path, size and modification time.
    Raises ModelError where a file cannot be read.
    """
    entry = located.entry
    try:
        if located.gguf is not None:
            weights = _file_digest(located.gguf, paths)
            config = tokenizer = weights
        else:
            config = _config_digest(located.folder / "config.json")
            tokenizer = digest(
                [(name, file_sha256(located.folder / name)) for name in _tokenizer_files(located.folder)]
            )
            if located.commit is not None:
                weights = f"hub:{entry.hub}@{located.commit}"
            else:
                shards = sorted(located.folder.glob("*.safetensors"))
                weights = digest([(shard.name, _file_digest(shard, paths)) for shard in shards])
    except OSError as error:
        raise ModelError(f"the files of {entry.name} cannot be read: {error}") from error
    return ModelIdentity(
        model_fingerprint=digest(weights, config, entry.dtype, entry.attention)[:LENGTH],
        tokenizer_fingerprint=digest(tokenizer)[:LENGTH],
        weights_digest=weights,
        config_digest=config,
    )


def _tokenizer_files(folder: Path) -> list[str]:
    return [name for name in _TOKENIZER_FILES if (folder / name).is_file()]


def _config_digest(path: Path) -> str:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a model's configuration: it holds no fields")
    kept = {key: value for key, value in config.items() if key not in _VOLATILE_CONFIG}
    # Not canonical_json: configurations hold Infinity (Mamba 2's time_step_limit).
    return digest(json.dumps(kept, sort_keys=True))


def known_digests(paths: DataPaths) -> dict[str, str]:
    """The digests of large files that are remembered, by path, size and time; none where they cannot be read."""
    return read_json_if_whole(paths.digest_cache) or {}


def changed_unseen(paths: DataPaths, look: Callable[[str], None]) -> Iterator[Path]:
    """The files whose digest is remembered, whose size and time stand, and whose bytes are others all the same."""
    for key, digest_then in known_digests(paths).items():
        name, size, time_ns = key.rsplit("|", 2)
        path = Path(name)
        look(f"model file {path.name}")
        if path.is_file() and _key(path) == f"{name}|{size}|{time_ns}" and file_sha256(path) != digest_then:
            yield path


def _key(path: Path) -> str:
    stat = path.stat()
    return f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"


def _file_digest(path: Path, paths: DataPaths) -> str:
    """sha256 of a large file, remembered under the data folder as long as its size and time stand."""
    key = _key(path)
    known = known_digests(paths)
    if key not in known:
        known[key] = file_sha256(path)
        # Where nothing can be written, the file is read again the next time.
        with suppress(OSError):
            write_json(paths.digest_cache, known)
    return known[key]
