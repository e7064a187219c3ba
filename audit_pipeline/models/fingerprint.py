"""The identity of a model, independent of its name: digests for cache keys and lineage, and a quick version.

The quick version changes with the settings and file times of a model, and needs no digest of its weights. The identity
of a model at an endpoint depends on the history of the endpoint, which the second half of this module keeps. The module
also holds the fixed texts by which two tokenizers, or two states of one model, are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from audit_pipeline.errors import DataError, ModelError, to_one_line
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.locate import LocatedModel, locate, read_card
from audit_pipeline.models.model_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, WeightFiles, choose_weight_files
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.store.files import read_json, read_json_if_whole, write_json
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest

LENGTH = 24
TEXTS = (
    "The kettle had gone cold twice before anybody thought of the letter on the stairs.",
    "Wool is washed, carded and spun; only then does it go to the dyer, who asks for salt and patience.",
    "In 1874 the bridge cost 12,600 pounds, or about 3 pounds for each inhabitant of the valley.",
    "def area(width, height):\n    return width * height  # in square metres\n",
    "Der Zug nach Lübeck fährt um 7:45 Uhr; wer ihn verpasst, wartet bis zum Abend.",
)
"""The fixed texts: prose, numbers, code and German. If one is changed, the model of every endpoint counts as new."""
COUNTING = " ".join(map(str, range(1, 41)))
"""A text that any model continues correctly after its beginning: nearly every token is the most likely token."""


_TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
_VOLATILE_CONFIG = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache")
_VOLATILE_ADAPTER_CONFIG = ("base_model_name_or_path", "revision", "inference_mode", "peft_version", "task_type")
_NO_CONFIG = "no config.json"


@dataclass(frozen=True)
class ModelIdentity:
    """The digests that identify a model together with its settings for running.

    Attributes:
        model_fingerprint: Digest of the weights and of the settings that change numbers.
        tokenizer_fingerprint: Digest of the tokenizer files.
        weights_digest: Digest of the weights. With an adapter, that of its base. None for a model at an endpoint.
        config_digest: Digest of the configuration. With an adapter, that of its base.
        before: Fingerprints of the endpoint's earlier states, including the state before the first probe. Empty if it
            was never probed. None for weights on this machine.
        adapter_digest: Digest of the adapter, or None.
    """

    model_fingerprint: str
    tokenizer_fingerprint: str
    weights_digest: str | None
    config_digest: str
    before: frozenset[str] | None = None
    adapter_digest: str | None = None

    @property
    def is_unprobed(self) -> bool:
        """Return True if the server of the endpoint has never been probed."""
        return self.before is not None and not self.before


def identify(located: LocatedModel, paths: DataPaths) -> ModelIdentity:
    """Return the fingerprints of a model and of its tokenizer.

    The model's fingerprint covers weights (or hub commit), configuration, dtype, attention, compilation and the
    adapter. All bytes of local weights are read once. Their digest is cached by path, size and modification time. For a
    model at an endpoint, the state at the last probe replaces the weights.

    Raises:
        ModelError: If a file cannot be read.
        DataError: If the history of the endpoint is damaged.
    """
    entry = located.entry
    endpoint = entry.endpoint
    if entry.card is not None:
        card = read_card(entry.card, paths)
        return ModelIdentity(entry.card, card["tokenizer_fingerprint"], card["weights_digest"], digest(card))
    try:
        if located.gguf is not None:
            weights = _load_or_compute_digest(located.gguf, paths)
            config = tokenizer = weights
        else:
            config = _NO_CONFIG
            if located.has_config:
                config = _config_digest(located.folder / "config.json")
            tokenizer = _digest_tokenizer(located.folder)
            if endpoint is not None:
                weights = None
            elif located.commit is not None:
                weights = f"hub:{entry.hub}@{located.commit}"
            else:
                weights = _digest_weights(choose_weight_files(located.folder, entry.name), paths)
        if located.own_tokenizer is not None:
            tokenizer = _digest_tokenizer(located.own_tokenizer)
        adapter = None if located.adapter is None else _digest_adapter(located.adapter, paths)
    except OSError as error:
        raise ModelError(f"the files of {entry.name} cannot be read: {error}") from error
    if endpoint is not None:
        tokenizer_fingerprint = digest(tokenizer)[:LENGTH]
        *before, now = _list_state_fingerprints(endpoint, tokenizer_fingerprint, paths)
        return ModelIdentity(now, tokenizer_fingerprint, None, config, frozenset(before))
    parts = [weights, config, entry.dtype, entry.attention]
    if entry.compile:
        parts.append("compiled")
    if adapter is not None:
        parts.append(adapter)
    return ModelIdentity(
        model_fingerprint=digest(*parts)[:LENGTH],
        tokenizer_fingerprint=digest(tokenizer)[:LENGTH],
        weights_digest=weights,
        config_digest=config,
        adapter_digest=adapter,
    )


def list_earlier_fingerprints(entry: ModelEntry, tokenizer: str, paths: DataPaths) -> frozenset[str] | None:
    """Return the fingerprints of an endpoint's earlier states, or None for weights on this machine.

    The result equals ``ModelIdentity.before``, but the model is not loaded.

    Args:
        entry: The entry of the model.
        tokenizer: Fingerprint of the model's tokenizer.
        paths: The data folder.
    """
    if entry.endpoint is None:
        return None
    return frozenset(_list_state_fingerprints(entry.endpoint, tokenizer, paths)[:-1])


def _digest_adapter(folder: Path, paths: DataPaths) -> str:
    # The name of the base is excluded, because the base has its own digest.
    config = _config_digest(folder / ADAPTER_CONFIG, _VOLATILE_ADAPTER_CONFIG)
    weights = _load_or_compute_digest(folder / ADAPTER_WEIGHTS, paths)
    return digest("adapter", weights, config)


def _digest_tokenizer(folder: Path) -> str:
    digests = []
    for file in _list_tokenizer_files(folder):
        if file.is_file():
            digests.append((file.name, file_sha256(file)))
    return digest(digests)


def _list_tokenizer_files(folder: Path) -> list[Path]:
    files = {*(folder / name for name in _TOKENIZER_FILES), *folder.glob("*.model")}
    return sorted(files, key=lambda file: file.name)


def _digest_weights(weights: WeightFiles, paths: DataPaths) -> str:
    """Return the digest of exactly the files that are loaded.

    It includes the index only if the index decides between two tensors of one name, or if it omits a tensor of a shard.
    """
    digests: list[object] = [(path.name, _load_or_compute_digest(path, paths)) for path in weights.paths]
    if weights.shard_by_tensor is not None and weights.find_unindexed_tensors():
        digests.append(sorted(weights.shard_by_tensor.items()))
    return digest(digests)


def _list_state_fingerprints(endpoint: Endpoint, tokenizer: str, paths: DataPaths) -> list[str]:
    """Return the fingerprints of all states of an endpoint in order. The first is the state before any probe."""
    names = [None, *read_history(endpoint, tokenizer, paths).names]
    return [compute_endpoint_fingerprint(endpoint, tokenizer, name) for name in names]


def _config_digest(path: Path, volatile: Sequence[str] = _VOLATILE_CONFIG) -> str:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is corrupt, because it is not valid JSON: {error}. Fetch the file again.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not the configuration of a model: it contains no JSON object")
    lasting = {key: value for key, value in config.items() if key not in volatile}
    # Not canonical_json: configurations hold Infinity (Mamba 2's time_step_limit).
    return digest(json.dumps(lasting, sort_keys=True))


def read_known_digests(paths: DataPaths) -> dict[str, str]:
    """Return the cached digests of large files by path, size and time. Empty if the cache is missing or damaged."""
    return read_json_if_whole(paths.digest_cache) or {}


def find_unnoticed_changes(paths: DataPaths, notify: Callable[[str], None]) -> Iterator[Path]:
    """Yield the files that no longer match their cached digest, although size and modification time are unchanged."""
    for key, digest_then in read_known_digests(paths).items():
        name, size, time_ns = key.rsplit("|", 2)
        path = Path(name)
        notify(f"model file {path.name}")
        if (
            path.is_file()
            and _digest_cache_key(path) == f"{name}|{size}|{time_ns}"
            and file_sha256(path) != digest_then
        ):
            yield path


def _digest_cache_key(path: Path) -> str:
    stat = path.stat()
    return f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}"


def _load_or_compute_digest(path: Path, paths: DataPaths) -> str:
    """Return the sha256 of a large file. The data folder caches it by path, size and modification time."""
    key = _digest_cache_key(path)
    known = read_known_digests(paths)
    if key not in known:
        known[key] = file_sha256(path)
        # If nothing can be written, the next call computes the digest again.
        with suppress(OSError):
            write_json(paths.digest_cache, known)
    return known[key]


# Fields of an entry that change no score. Several devices only add numbers in another order, as another batch size
# does, so 'devices' is among them. The digest of entry_version covers path, adapter and base separately.
_CHANGES_NO_NUMBER = {
    **dict.fromkeys(["name", "title", "path", "card", "release_date", "training_cutoff", "licence", "notes"], True),
    **dict.fromkeys(["devices", "series", "adapter", "base"], True),
    "endpoint": {"key_env", "concurrency", "timeout_seconds", "price_per_million", "max_tokens", "max_cost"},
}


def entry_version(entry: ModelEntry) -> str:
    """Return a digest that changes with the entry's settings for scoring, and with names, sizes or times of its files.

    For a hub model only the entry counts: nothing is fetched. The digest also changes when missing files appear.
    """
    settings = entry.model_dump(mode="json", exclude=_CHANGES_NO_NUMBER)  # type: ignore[arg-type]
    parts = [settings, str(entry.path), _list_file_stats(entry)]
    if entry.adapter is not None:
        parts.append(str(entry.adapter))
    if entry.default_reference is not None:
        parts.append(f"reference: {entry.default_reference}")
    return digest(*parts)[:16]


def _list_file_stats(entry: ModelEntry) -> list[tuple[str, int, int]]:
    files = []
    if entry.adapter is not None and entry.adapter.path is not None:
        folder = entry.adapter.path
        files = [folder / ADAPTER_CONFIG, folder / ADAPTER_WEIGHTS, *_list_tokenizer_files(folder)]
    if entry.hub is None:
        try:
            located = locate(entry.model_copy(update={"adapter": None}))
        except ModelError:
            return []
        if located.gguf is not None:
            files.append(located.gguf)
        else:
            files += sorted(located.folder.glob("*.*"))
    stats = []
    for file in files:
        if file.is_file():
            stat = file.stat()
            stats.append((file.name, stat.st_size, stat.st_mtime_ns))
    return stats


# The history of the models at an endpoint.
#
# The digest of remote weights is unknown. The log-probabilities that the server returned for five fixed texts at the
# first probe replace it. Each run requests them again. If they differ by more than the tolerance, the endpoint has
# another model. The new model has its own fingerprint and cache rows, and its pairs of model and benchmark are audited
# again.

# Version of the code that reads responses. After a change, earlier cache rows count as rows of another model.
_READING = "endpoint 2"

_MIN_TOLERANCE = 0.1
_NOISE_FACTOR = 3.0

Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """The result of a probe: a request for the log-probabilities of the fixed texts.

    Attributes:
        values: Log-probabilities of the tokens of the fixed texts, one sequence per text, in nats.
        noise: Largest difference between two responses to the same request, in nats.
        server: Name that the server reports for itself.
    """

    values: Values
    noise: float
    server: str | None


@dataclass(frozen=True)
class EndpointHistory:
    """The models that have run at one endpoint.

    Attributes:
        names: Digests as names of the models, in the order of their first probes. The last is the current model.
        values: Values of the first probe of the current model.
        server: Name that the server reported at the last probe.
    """

    names: Sequence[str] = ()
    values: Values = ()
    server: str | None = None


def find_largest_deviation(values: Iterable[float], others: Iterable[float]) -> float:
    """Return the largest absolute difference between two sequences of equal length. Equal infinities do not differ."""
    # Equal values are skipped: the difference of two infinities would be NaN.
    return max((float(abs(a - b)) for a, b in zip(values, others, strict=True) if a != b), default=0.0)


def is_different_model(values: Values, probe: Probe) -> bool:
    """Return True if a probe shows another model than ``values``: some token differs by more than the tolerance.

    The tolerance is 0.1 nats, or three times the probe's noise if that is more. One model in float32 or float16 with
    different kernels stays below 0.1: at most 0.03 and 0.097 nats were measured over 368 tokens. The same weights at
    another precision exceed it (bfloat16: 2.2; four bits: 0.7), and so do other models. Their rows must not be mixed.
    A server may answer the same request in slightly different ways, because of batch sizes or bfloat16. Three times the
    noise covers this.

    Another number of values also means another model: its tokenizer splits the texts into other tokens.
    """
    if list(map(len, values)) != list(map(len, probe.values)):
        return True
    tolerance = max(_MIN_TOLERANCE, _NOISE_FACTOR * probe.noise)
    return any(find_largest_deviation(*pair) > tolerance for pair in zip(values, probe.values, strict=True))


def add_probe(history: EndpointHistory, probe: Probe) -> EndpointHistory:
    """Return the history with a probe added. If the probe differs from the current model, a new model is appended."""
    if history.names and not is_different_model(history.values, probe):
        # The values of the first probe stay. Otherwise a model could drift away by small steps.
        return replace(history, server=probe.server)
    name = digest(len(history.names), probe.values)[:LENGTH]
    return EndpointHistory((*history.names, name), probe.values, probe.server)


def compute_endpoint_fingerprint(endpoint: Endpoint, tokenizer_fingerprint: str, name: str | None) -> str:
    """Return the fingerprint of an endpoint's model.

    The fingerprint changes with everything that changes cache rows: address, model, dialect and returned statistics.
    API keys, limits, prices and the number of concurrent requests do not change it. ``name`` is the name of the model
    in the endpoint's history, or None before the first probe.
    """
    key = _build_endpoint_key(endpoint, tokenizer_fingerprint)
    return digest(*key, sorted(endpoint.available_statistics), name)[:LENGTH]


def history_path(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> Path:
    """Return the path of the endpoint's history file."""
    return paths.endpoint(digest(*_build_endpoint_key(endpoint, tokenizer_fingerprint))[:LENGTH])


def _build_endpoint_key(endpoint: Endpoint, tokenizer_fingerprint: str) -> tuple[object, ...]:
    address = endpoint.url.rstrip("/")
    return _READING, address, endpoint.model, endpoint.revision, endpoint.dialect, tokenizer_fingerprint


def read_history(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> EndpointHistory:
    """Return the history of the endpoint. It is empty before the first probe.

    Raises:
        DataError: If the file is damaged. Without it, the model of the cached rows is unknown.
    """
    path = history_path(endpoint, tokenizer_fingerprint, paths)
    try:
        return EndpointHistory(**read_json(path)["history"])
    except FileNotFoundError:
        return EndpointHistory()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the history of the server {endpoint.url} cannot be read: {path} ({to_one_line(error)}). Delete this "
            "file. The model on the server then counts as a new model."
        ) from error


def record_probe(endpoint: Endpoint, tokenizer_fingerprint: str, probe: Probe, paths: DataPaths) -> bool:
    """Add a probe to the endpoint's history file. Return True if the endpoint has another model than before."""
    path = history_path(endpoint, tokenizer_fingerprint, paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        before = read_history(endpoint, tokenizer_fingerprint, paths)
        after = add_probe(before, probe)
        address = {name: getattr(endpoint, name) for name in ("url", "model", "revision", "dialect")}
        write_json(path, {**address, "history": asdict(after)})
    return 0 < len(before.names) < len(after.names)
