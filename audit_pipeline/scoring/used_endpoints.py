"""The endpoints that one command or run uses, each with its budget and the result of its probe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError, BudgetError, ModelError, TransientError
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.endpoint_history import record_probe
from audit_pipeline.models.fingerprint import COUNTING, TEXTS
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, find_endpoint_models
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.tokens import encode, window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.extras.servers.backend import EndpointBackend
    from audit_pipeline.extras.servers.probe import ProbeResult

Notify = Callable[[str], None]

_PROBES = 2
"""The number of probes per command. The plan of a command probes the server, and its run probes the server again."""


def estimate_probe_tokens(model: TokenizedModel) -> int:
    """Estimate the number of tokens that a probe of the model's server sends (probe.py).

    A probe sends each of its texts twice. A request also generates a token.
    """
    window, _ = window_and_stride(model)
    texts = encode(model, [*TEXTS, *TEXTS, COUNTING, COUNTING])
    return sum(min(window, len(text.token_id)) + 1 for text in texts)


@dataclass(frozen=True)
class SendingEstimate:
    """The estimated number and cost of the tokens that a command would send to the server of a model.

    Attributes:
        model: Name of the model.
        url: The URL of the server.
        sent_to: A sentence that names the recipient of the texts.
        tokens: Number of tokens, including those of the probes.
        probes: Number of tokens of the probes alone.
        cost: The cost in the currency of the price, or None without a price.
        limits: The limits of the model's entry.
    """

    model: str
    url: str
    sent_to: str
    tokens: int
    probes: int
    cost: float | None
    limits: Limits


def estimate_sending(model: TokenizedModel, tokens: int) -> SendingEstimate | None:
    """Estimate the tokens and cost of a command that sends ``tokens`` tokens besides its probes.

    The result is None if the model has no endpoint.
    """
    endpoint = model.entry.endpoint
    if endpoint is None:
        return None
    probes = _PROBES * estimate_probe_tokens(model)
    sent = tokens + probes
    cost = None if endpoint.price_per_million is None else endpoint.cost_of(sent)
    limits = Limits(endpoint.max_tokens, endpoint.max_cost)
    return SendingEstimate(model.entry.name, endpoint.url, endpoint.recipient_notice, sent, probes, cost, limits)


class Endpoints:
    """The endpoints that a command or run has probed and sent texts to, with a budget per endpoint.

    Attributes:
        shared: The budget of all endpoints together.
    """

    def __init__(self, limits: Limits | None = None, sent: Mapping[str, int] | None = None) -> None:
        """Set the limits of the command.

        Args:
            limits: The limits of all endpoints together. In addition, each entry has limits of its own.
            sent: The tokens that earlier runs of the same command have sent, as :attr:`sent` returns them. They count
                towards the limits of the entries. The caller must already have subtracted them from ``limits``.
        """
        self.shared = SharedBudget(limits or Limits())
        self._sent_before = sent or {}
        self._budgets: dict[Endpoint, Budget] = {}
        self._probed: dict[Endpoint, ProbeResult] = {}
        self._unreachable: dict[Endpoint, AuditError] = {}

    def probe_and_load(self, entry: ModelEntry, paths: DataPaths, notify: Notify) -> TokenizedModel:
        """Load a model after a probe of its endpoints.

        If the entry has a reference model at an endpoint, that endpoint is probed too. A probe detects whether the
        server runs a different model than before. If the server is unreachable, but was probed earlier, the model is
        assumed to be unchanged, so that its cache can be used. If a reference model cannot be probed, the detectors
        that need it have no scores.

        Args:
            entry: The entry of the model.
            paths: The data folder.
            notify: A callback with messages about recipients, changes and failed probes.

        Raises:
            ModelError: If load_tokenized raises it, or if the server's responses are unusable.
            TransientError: If the server is unreachable and the model was never probed.
            BudgetError: If the limits do not suffice for a probe.
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
                if uses_history:
                    consequence = "the model is assumed to be unchanged"
                else:
                    consequence = "the reference model is skipped"
                notify(f"{model_entry.name}: the server was not asked: {error}; {consequence}")
        return load_tokenized(entry, paths)

    def open(self, model: TokenizedModel, paths: DataPaths, notify: Notify) -> EndpointBackend:
        """Connect to the server of a model.

        Raises:
            ModelError: If the model has no endpoint, or if the server runs a different model than at the first probe.
            AuditError: If the server cannot be probed.
        """
        # These imports load the HTTP client, which models on this machine do not need.
        from audit_pipeline.extras.servers.backend import EndpointBackend  # noqa: PLC0415
        from audit_pipeline.extras.servers.dialects import EndpointClient  # noqa: PLC0415

        endpoint = model.entry.endpoint
        if endpoint is None:
            raise ModelError(f"{model.entry.name} has no endpoint. Add one to its entry in config/models.yaml")
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
        """Return the budget of an endpoint.

        Raises:
            BudgetError: If the cost is limited and the endpoint has no price.
        """
        if endpoint not in self._budgets:
            if self.shared.limits.max_cost is not None and endpoint.price_per_million is None:
                raise BudgetError(
                    f"{endpoint.described} has no price. Add price_per_million to its entry in config/models.yaml"
                )
            before = self._sent_before.get(endpoint.described, 0)
            remaining = Limits(endpoint.max_tokens, endpoint.max_cost).subtract(before, endpoint.cost_of(before))
            self._budgets[endpoint] = Budget(remaining, endpoint.price_per_million or 0.0, shared=self.shared)
        return self._budgets[endpoint]

    @property
    def sent(self) -> Mapping[str, int]:
        """Return the number of sent tokens by the description of the endpoint. Unused endpoints are omitted."""
        sent: Counter[str] = Counter()
        for endpoint, budget in self._budgets.items():
            # Two entries may name the same endpoint.
            sent[endpoint.described] += budget.tokens
        return {description: tokens for description, tokens in sent.items() if tokens}

    def _probe(self, endpoint: Endpoint, model: TokenizedModel, paths: DataPaths, notify: Notify) -> None:
        from audit_pipeline.extras.servers.client import read_api_key  # noqa: PLC0415
        from audit_pipeline.extras.servers.dialects import EndpointClient  # noqa: PLC0415
        from audit_pipeline.extras.servers.probe import probe_endpoint  # noqa: PLC0415

        # A missing API key is reported before anything is sent.
        read_api_key(endpoint)
        name = model.entry.name
        notify(f"{name}: {endpoint.recipient_notice}")
        result = probe_endpoint(model, EndpointClient(name, endpoint, self.budget(endpoint), notify=notify))
        if record_probe(endpoint, model.identity.tokenizer_fingerprint, result.seen, paths):
            notify(f"the model at the endpoint of {name} changed: what was computed before is not used for it")
        self._probed[endpoint] = result
        # Commands that list many models probe no server. They read the last probed model from the cards.
        write_card(load_tokenized(model.entry, paths), paths)
