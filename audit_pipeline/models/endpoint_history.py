"""The history of models at an endpoint, and the fingerprint of its current model.

The digest of remote weights is unknown. The log-probabilities that the server returned for five fixed texts at the
first probe replace it. Each run requests them again. If they differ by more than the tolerance, the endpoint has
another model. The new model has its own fingerprint and cache rows, and its pairs of model and benchmark are audited
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest

LENGTH = 24
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
            f"{path} cannot be read ({to_one_line(error)}): remove it; the model then counts as another model"
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
