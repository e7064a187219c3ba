"""The endpoints that one command, or one run, uses: a budget each, and which model each was found to have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError, BudgetError, ModelError, TransientError
from audit_pipeline.models.config import Endpoint, ModelEntry
from audit_pipeline.models.endpoint_history import record_probe
from audit_pipeline.models.fingerprint import COUNTING, TEXTS
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, find_endpoint_models
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.tokens import encode, window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.extras.servers.backend import EndpointBackend
    from audit_pipeline.extras.servers.probe import ProbeResult

Notify = Callable[[str], None]

_PROBES = 2
"""A command asks a server once before it plans, and its run once more before texts are sent."""


def estimate_probe_tokens(model: TokenizedModel) -> int:
    """About how many tokens a probe of the server of ``model`` sends (probe.py): an estimate.

    Each text of the probe is sent twice and each that counts about once; a request generates a token too.
    """
    window, _ = window_and_stride(model)
    lengths = [min(window, len(text.token_id)) + 1 for text in encode(model, [*TEXTS, *TEXTS, COUNTING, COUNTING])]
    return sum(lengths)


@dataclass(frozen=True)
class Sending:
    """What a command would send to the server of ``model``: ``tokens``, of which ``probes`` ask which model it is.

    ``cost`` is None without a price; ``limits`` are those of the model's entry.
    """

    model: str
    url: str
    sent_to: str
    tokens: int
    probes: int
    cost: float | None
    limits: Limits


def estimate_sending(model: TokenizedModel, tokens: int) -> Sending | None:
    """Return what a command would send for texts of ``tokens`` tokens; None where the model is at no endpoint."""
    endpoint = model.entry.endpoint
    if endpoint is None:
        return None
    probes = _PROBES * estimate_probe_tokens(model)
    sent = tokens + probes
    cost = None if endpoint.price_per_million is None else endpoint.cost_of(sent)
    limits = Limits(endpoint.max_tokens, endpoint.max_cost)
    return Sending(model.entry.name, endpoint.url, endpoint.recipient_notice, sent, probes, cost, limits)


class Endpoints:
    """What a command, or run, has asked and sent so far, with a budget for each endpoint.

    ``limits`` hold for all endpoints together, and for each those of its entry too. ``sent`` is what the same
    command has sent before (see :attr:`sent`): it counts for the entries' limits; of ``limits`` it is off already.
    ``shared`` counts what was sent to all endpoints together.
    """

    def __init__(self, limits: Limits | None = None, sent: Mapping[str, int] | None = None) -> None:
        self.shared = SharedBudget(limits or Limits())
        self._sent_before = sent or {}
        self._budgets: dict[Endpoint, Budget] = {}
        self._probed: dict[Endpoint, ProbeResult] = {}
        self._unreachable: dict[Endpoint, AuditError] = {}

    def probe_and_load(self, entry: ModelEntry, paths: DataPaths, notify: Notify) -> TokenizedModel:
        """Return the model as load_tokenized gives it, for planning and running it now.

        A model at an endpoint is probed first for a change, and so is a reference model at one; ``notify`` is called
        with where texts are sent, and with a change. Where the server cannot be reached, and the model has been probed
        before, it counts as unchanged: what is cached can be used. A reference model that cannot be probed is reported,
        and its detector goes without.

        Raises what load_tokenized raises; ModelError where the server's answers cannot be used, TransientError where it
        cannot be reached, BudgetError where the limits do not suffice for asking.
        """
        for model_entry, endpoint in find_endpoint_models(entry):
            if endpoint in self._probed or endpoint in self._unreachable:
                continue
            known = False
            try:
                model = load_tokenized(model_entry, paths)
                known = bool(model.identity.before)
                self._probe(endpoint, model, paths, notify)
            except AuditError as error:
                uses_history = known and isinstance(error, TransientError)
                if model_entry is entry and not uses_history:
                    raise
                self._unreachable[endpoint] = error
                what_now = (
                    "it is taken for the model that it was" if uses_history else "the reference model is left out"
                )
                notify(f"{model_entry.name}: the server was not asked: {error}; {what_now}")
        return load_tokenized(entry, paths)

    def open(self, model: TokenizedModel, paths: DataPaths, notify: Notify) -> EndpointBackend:
        """Return the model ready to run. Raises as :meth:`load`, and ModelError where the endpoint has another."""
        # Imported where a server is asked: planning what is on this machine needs no client.
        from audit_pipeline.extras.servers.backend import EndpointBackend  # noqa: PLC0415
        from audit_pipeline.extras.servers.prompt_client import EndpointClient  # noqa: PLC0415

        endpoint = model.entry.endpoint
        if endpoint is None:
            raise ModelError(f"{model.entry.name} is at no endpoint")
        if endpoint in self._unreachable:
            raise self._unreachable[endpoint]
        if endpoint not in self._probed:
            self._probe(endpoint, model, paths, notify)
        now = load_tokenized(model.entry, paths).identity.model_fingerprint
        if now != model.identity.model_fingerprint:
            raise ModelError(f"the model at the endpoint of {model.entry.name} changed meanwhile: run it again")
        client = EndpointClient(model.entry.name, endpoint, self.budget(endpoint), notify=notify)
        return EndpointBackend(model, client, self._probed[endpoint])

    def budget(self, endpoint: Endpoint) -> Budget:
        """Return the budget of all that is sent to ``endpoint``.

        Raises BudgetError where a limit in money holds and the endpoint has no price.
        """
        if endpoint not in self._budgets:
            if self.shared.limits.max_cost is not None and endpoint.price_per_million is None:
                raise BudgetError(f"{endpoint.described} has no price: give price_per_million in its entry")
            before = self._sent_before.get(endpoint.described, 0)
            remaining = Limits(endpoint.max_tokens, endpoint.max_cost).subtract(before, endpoint.cost_of(before))
            self._budgets[endpoint] = Budget(remaining, endpoint.price_per_million or 0.0, shared=self.shared)
        return self._budgets[endpoint]

    @property
    def sent(self) -> Mapping[str, int]:
        """The tokens that were sent, by endpoint in words."""
        found: Counter[str] = Counter()
        for endpoint, budget in self._budgets.items():
            # Two entries may name one endpoint.
            found[endpoint.described] += budget.tokens
        return {words: tokens for words, tokens in found.items() if tokens}

    def _probe(self, endpoint: Endpoint, model: TokenizedModel, paths: DataPaths, notify: Notify) -> None:
        from audit_pipeline.extras.servers.client import read_api_key  # noqa: PLC0415
        from audit_pipeline.extras.servers.probe import probe_endpoint  # noqa: PLC0415
        from audit_pipeline.extras.servers.prompt_client import EndpointClient  # noqa: PLC0415

        # Nothing is sent without the key: a missing one is reported first.
        read_api_key(endpoint)
        name = model.entry.name
        notify(f"{name}: {endpoint.recipient_notice}")
        found = probe_endpoint(model, EndpointClient(name, endpoint, self.budget(endpoint), notify=notify))
        if record_probe(endpoint, model.identity.tokenizer_fingerprint, found.seen, paths):
            notify(f"the model at the endpoint of {name} changed: what was computed before is not used for it")
        self._probed[endpoint] = found
        # Readers of many models probe no server: the cards show which model was found last.
        write_card(load_tokenized(model.entry, paths), paths)
