"""The history of a model at an endpoint: which model the server turned out to have, probe by probe.

Remote weights have no digest. Their state takes its place: the log-probabilities that the server gave for five fixed
texts when this model was first seen at the address. Each run asks for them again; where they differ by more than the
tolerance, a new state begins, and with it another fingerprint, other rows of the cache, and pairs to audit again.
Earlier states are kept, so that earlier findings can be assigned to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock

from audit_pipeline.catalogue.contracts import digest
from audit_pipeline.catalogue.files import read_json, write_json
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import DataError, to_one_line
from audit_pipeline.models.config import Endpoint

LENGTH = 24
# Another where answers are read otherwise: the rows of before are then those of another model.
_READING = "endpoint 2"

_LEAST_TOLERANCE = 0.1
_TIMES_NOISE = 3.0
LARGEST_NOISE = 0.5
"""Nats. A server whose two answers to one request are further apart looks like one that changes its model."""
NOISE_TO_TELL = 0.1

Values = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Probe:
    """What a probe found: the log-probabilities of its texts' tokens (nats, one sequence a text), how far two answers
    to one request were apart (nats), and what the server calls itself."""

    values: Values
    noise: float
    server: str | None


@dataclass(frozen=True)
class ModelState:
    """One model at an address, from the first time that it was seen to the last.

    ``seen`` is the result of the first probe, except for the server's name: that is of the last one.
    """

    state: str
    first_seen: str
    last_seen: str
    seen: Probe


@dataclass(frozen=True)
class EndpointHistory:
    """All states of the model that one entry names, in order; the last is the current one."""

    states: tuple[ModelState, ...] = field(default=())

    @property
    def now(self) -> ModelState | None:
        return self.states[-1] if self.states else None


def largest_deviation(values: Iterable[float], others: Iterable[float]) -> float:
    """The largest difference between two sequences of one length; two infinities of one kind are equal."""
    return max((0.0 if a == b else float(abs(a - b)) for a, b in zip(values, others, strict=True)), default=0.0)


def is_different_model(earlier_probe: Probe, later_probe: Probe) -> bool:
    """Whether two probes are of different models: some token's log-probability is further off than the tolerance.

    The tolerance is a tenth of a nat, or three times the noise of either probe where that is more. A tenth, because one
    model run twice in float32 or float16 by different kernels stays below it (0.03 and 0.097 nats at most were measured
    over 368 tokens of one model), while its weights at another precision (bfloat16: 2.2; four bits: 0.7), and all the
    more another model, do not: their rows must not be put together. Three times the noise, because a server that gives
    one request two answers (batches of other sizes, bfloat16) moves by as much by itself, and two probes say little of
    how far at most; that is bounded, so that no noise hides a change. Another number of values is another model as
    well: the texts are cut into other tokens.
    """
    if [len(values) for values in earlier_probe.values] != [len(values) for values in later_probe.values]:
        return True
    tolerance = max(_LEAST_TOLERANCE, _TIMES_NOISE * max(earlier_probe.noise, later_probe.noise))
    return any(
        largest_deviation(*pair) > tolerance for pair in zip(earlier_probe.values, later_probe.values, strict=True)
    )


def add_probe(history: EndpointHistory, probe: Probe, moment: str) -> EndpointHistory:
    """The states after a probe at that time: the last one seen again, or a new one after it."""
    now = history.now
    if now is None or is_different_model(now.seen, probe):
        name = digest(len(history.states), probe.values)[:LENGTH]
        return EndpointHistory((*history.states, ModelState(name, moment, moment, probe)))
    # The values stay those of the first time, so that a model cannot walk away from them by small steps.
    first_seen = replace(now.seen, server=probe.server)
    return EndpointHistory((*history.states[:-1], replace(now, last_seen=moment, seen=first_seen)))


def fingerprint_of(endpoint: Endpoint, tokenizer_fingerprint: str, state: str | None) -> str:
    """The model's fingerprint in that state; None: it has not been probed yet.

    All that changes rows is in it: whose model it is, how it is asked, which columns it gives. Keys, limits, prices and
    the number of requests at a time are not.
    """
    return digest(*_build_endpoint_key(endpoint, tokenizer_fingerprint), sorted(endpoint.gives), state)[:LENGTH]


def history_path(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> Path:
    """The file with the history of the model that these name."""
    return paths.endpoint(digest(*_build_endpoint_key(endpoint, tokenizer_fingerprint))[:LENGTH])


def _build_endpoint_key(endpoint: Endpoint, tokenizer_fingerprint: str) -> tuple[object, ...]:
    address = endpoint.url.rstrip("/")
    return _READING, address, endpoint.model, endpoint.revision, endpoint.dialect, tokenizer_fingerprint


def read_history(endpoint: Endpoint, tokenizer_fingerprint: str, paths: DataPaths) -> EndpointHistory:
    """The history of the model; empty where it has not been probed.

    Raises DataError where the file is damaged: without it the cached rows have no known model.
    """
    path = history_path(endpoint, tokenizer_fingerprint, paths)
    try:
        content = read_json(path)
        return EndpointHistory(
            tuple(ModelState(**{**state, "seen": Probe(**state["seen"])}) for state in content["states"])
        )
    except FileNotFoundError:
        return EndpointHistory()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({to_one_line(error)}): remove it, and the model counts as another one from then on"
        ) from error


def record_probe(endpoint: Endpoint, tokenizer_fingerprint: str, probe: Probe, paths: DataPaths) -> bool:
    """Record a probe; returns whether the address has another model than before."""
    path = history_path(endpoint, tokenizer_fingerprint, paths)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        before = read_history(endpoint, tokenizer_fingerprint, paths)
        after = add_probe(before, probe, datetime.now(UTC).isoformat(timespec="seconds"))
        address = {name: getattr(endpoint, name) for name in ("url", "model", "revision", "dialect")}
        write_json(path, {**address, "states": [asdict(state) for state in after.states]})
    return 0 < len(before.states) < len(after.states)
