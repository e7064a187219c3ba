"""The models that were found at an endpoint, and the fingerprint that follows.

Remote weights have no digest. The log-probabilities that the server gave for five fixed texts, when the model was first
seen at the address, take its place. Each run asks for them again; where they differ by more than the tolerance, it is
another model, with another fingerprint, other rows of the cache, and pairs to audit again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.models.config import Endpoint
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import digest

LENGTH = 24
# Another where answers are read otherwise: the rows of before are then those of another model.
_READING = "endpoint 2"

_LEAST_TOLERANCE = 0.1
_TIMES_NOISE = 3.0

Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """What a probe found: the log-probabilities of its texts' tokens (nats, one sequence a text), how far two answers
    to one request were apart (nats), and what the server calls itself.
    """

    values: Values
    noise: float
    server: str | None


@dataclass(frozen=True)
class EndpointHistory:
    """The models of one address by name, the last being the current one, and what its first probe gave.

    ``server`` is the server's name of the last probe.
    """

    names: Sequence[str] = ()
    values: Values = ()
    server: str | None = None


def find_largest_deviation(values: Iterable[float], others: Iterable[float]) -> float:
    """Return the largest difference between two sequences of one length; two infinities of one kind are equal."""
    return max((0.0 if a == b else float(abs(a - b)) for a, b in zip(values, others, strict=True)), default=0.0)


def is_different_model(values: Values, probe: Probe) -> bool:
    """Return whether a probe is of another model than the ``values``: some token is further off than the tolerance.

    The tolerance is a tenth of a nat, or three times the probe's noise where that is more. A tenth, because one model
    run twice in float32 or float16 by different kernels stays below it (0.03 and 0.097 nats at most were measured over
    368 tokens of one model), while its weights at another precision (bfloat16: 2.2; four bits: 0.7), and all the more
    another model, do not: their rows must not be put together. Three times the noise, because a server that gives one
    request two answers (batches of other sizes, bfloat16) moves by as much by itself. Another number of values is
    another model as well: the texts are cut into other tokens.
    """
    if [len(of_text) for of_text in values] != [len(of_text) for of_text in probe.values]:
        return True
    tolerance = max(_LEAST_TOLERANCE, _TIMES_NOISE * probe.noise)
    return any(find_largest_deviation(*pair) > tolerance for pair in zip(values, probe.values, strict=True))


def add_probe(history: EndpointHistory, probe: Probe) -> EndpointHistory:
    """Return the history after a probe: the last model seen again, or a new one."""
    if history.names and not is_different_model(history.values, probe):
        # The values stay those of the first time, so that a model cannot walk away from them by small steps.
        return replace(history, server=probe.server)
    name = digest(len(history.names), probe.values)[:LENGTH]
    return EndpointHistory((*history.names, name), probe.values, probe.server)


def compute_endpoint_fingerprint(endpoint: Endpoint, tokenizer_fingerprint: str, name: str | None) -> str:
    """Return the fingerprint of the model of that name; None: it has not been probed yet.

    All that changes rows is in it: whose model it is, how it is asked, which columns it gives. Keys, limits, prices and
    the number of requests at a time are not.
    """
    return digest(*_build_endpoint_key(endpoint, tokenizer_fingerprint), sorted(endpoint.available_statistics), name)[
        :LENGTH
    ]


def history_path(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> Path:
    """Return the file with the history of the endpoint."""
    return paths.endpoint(digest(*_build_endpoint_key(endpoint, tokenizer_fingerprint))[:LENGTH])


def _build_endpoint_key(endpoint: Endpoint, tokenizer_fingerprint: str) -> tuple[object, ...]:
    address = endpoint.url.rstrip("/")
    return _READING, address, endpoint.model, endpoint.revision, endpoint.dialect, tokenizer_fingerprint


def read_history(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> EndpointHistory:
    """Read the models of the endpoint; none where it has not been probed.

    Raises DataError where the file is damaged: without it the cached rows have no known model.
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
    """Record a probe; returns whether the address has another model than before."""
    path = history_path(endpoint, tokenizer_fingerprint, paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        before = read_history(endpoint, tokenizer_fingerprint, paths)
        after = add_probe(before, probe)
        address = {name: getattr(endpoint, name) for name in ("url", "model", "revision", "dialect")}
        write_json(path, {**address, "history": asdict(after)})
    return 0 < len(before.names) < len(after.names)
