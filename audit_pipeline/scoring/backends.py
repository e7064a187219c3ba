"""The back end of a model: loading on this machine or by Ray, or the connection to its server.

A command keeps a single model in memory. For models on servers, it keeps the budget of each endpoint and the result of
its probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from audit_pipeline.errors import AuditError, BudgetError, ModelError, TransientError
from audit_pipeline.models.adapters import HeldBase, release_unused_memory
from audit_pipeline.models.config import ModelEntry
from audit_pipeline.models.fingerprint import COUNTING, TEXTS, record_probe
from audit_pipeline.models.server_settings import Endpoint
from audit_pipeline.models.tokenized_model import TokenizedModel, load_tokenized, write_card
from audit_pipeline.models.usage_budget import Budget, Limits, SharedBudget, find_endpoint_models
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.token_statistics.backend import Backend, BackendOf
from audit_pipeline.token_statistics.engine_choice import IN_PROCESS, Engine, choose_engine
from audit_pipeline.token_statistics.tokens import encode, window_and_stride

if TYPE_CHECKING:
    from audit_pipeline.extras.servers.backend import EndpointBackend
    from audit_pipeline.extras.servers.probe import ProbeResult


Notify = Callable[[str], None]


class HeldModel:
    """The last loaded model of a command. It is released before another model is loaded.

    A back end depends on the whole entry of a model. The same weights with another device, other endpoint settings or
    another start token therefore count as another model.

    Attributes:
        base: The weights of the base model. They stay in memory for other models that are adapters of the same base.
    """

    def __init__(self) -> None:
        """Create a holder that holds no model yet."""
        self._held: tuple[object, Backend] | None = None
        self._is_unused = True
        self.base = HeldBase()

    def ensure_loaded(self, model: TokenizedModel, load: BackendOf) -> Backend:
        """Return the back end of a model. Call ``load`` unless this model is held already.

        If ``load`` raises an exception, no model is held.
        """
        key = (model.identity.model_fingerprint, model.entry.devices, model.entry.host, model.start_token_id)
        if self._held is None or self._held[0] != key:
            self.free(keeps_base=model.entry.host.is_here)
            self._is_unused = False
            self._held = (key, load(model))
        return self._held[1]

    def free(self, *, keeps_base: bool = False) -> None:
        """Release the model and its memory.

        Args:
            keeps_base: True to keep the weights of the base model in memory.
        """
        if self._is_unused:
            # Every run ends with this call. Without a model there is no memory to release, and collecting garbage takes
            # up to a second.
            return
        self._held = None
        if keeps_base:
            release_unused_memory()
        else:
            self.base.free()
            self._is_unused = True


def open_backend(
    model: TokenizedModel,
    paths: DataPaths,
    device: str | None = None,
    notify: Notify = lambda message: None,
    endpoints: Endpoints | None = None,
    engine: Engine = IN_PROCESS,
    base: HeldBase | None = None,
) -> Backend:
    """Load a model, or connect to its server.

    Args:
        model: The model.
        paths: The data folder.
        device: The device. By default a GPU if there is one.
        notify: A callback with messages about slow steps.
        endpoints: The endpoints that the command has used so far.
        engine: The engine: this process, or Ray.
        base: The holder of a base model that may be in memory.

    Raises:
        ModelError: If the model cannot be loaded or its server cannot be used.
        ClusterError: If the workers of the engine are unavailable.
    """
    if not model.entry.host.is_here:
        if engine.name == "ray":
            notify(f"{model.entry.name} runs on a server. This process sends the requests, without Ray.")
        return (endpoints or Endpoints()).open(model, paths, notify)
    if engine.name == "ray":
        from audit_pipeline.extras.ray.ray_backend import RayBackend  # noqa: PLC0415

        return RayBackend(model, paths, engine, device, notify, lambda: open_backend(model, paths, device, notify))
    # This import loads torch, which a command with a complete cache does not need.
    from audit_pipeline.token_statistics.loading import load_forward_pass  # noqa: PLC0415

    return load_forward_pass(model, paths, device, notify, base)


def build_backend_loader(
    paths: DataPaths,
    device: str | None,
    endpoints: Endpoints,
    engine: Engine | None = None,
    notify: Notify = lambda message: None,
) -> BackendOf:
    """Return a function that loads models on demand. One model at a time is in memory.

    Args:
        paths: The data folder.
        device: The device. By default a GPU if there is one.
        endpoints: The endpoints that the command uses.
        engine: The engine. By default it depends on the environment.
        notify: A callback with messages about loading.
    """
    held = HeldModel()

    def load(model: TokenizedModel) -> Backend:
        if model.entry.host.is_here:
            notify(f"loading {model.entry.name}")
        backend = open_backend(model, paths, device, notify, endpoints, engine or choose_engine(), held.base)
        notify(f"{model.entry.name}: {backend.described}")
        return backend

    return lambda model: held.ensure_loaded(model, load)


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
                notify(f"{model_entry.name}: the probe of the server failed, so {consequence}: {error}")
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
            raise ModelError(f"{model.entry.name} has no endpoint. Add an endpoint to its entry in config/models.yaml.")
        if endpoint in self._unreachable:
            raise self._unreachable[endpoint]
        if endpoint not in self._probed:
            self._probe(endpoint, model, paths, notify)
        now = load_tokenized(model.entry, paths).identity.model_fingerprint
        if now != model.identity.model_fingerprint:
            raise ModelError(
                f"the model on the server of {model.entry.name} has changed since the probe. Run the command again."
            )
        client = EndpointClient(model.entry.name, endpoint, self.get_budget(endpoint), notify=notify)
        return EndpointBackend(model, client, self._probed[endpoint])

    def get_budget(self, endpoint: Endpoint) -> Budget:
        """Return the budget of an endpoint.

        Raises:
            BudgetError: If the cost is limited and the endpoint has no price.
        """
        if endpoint not in self._budgets:
            if self.shared.limits.max_cost is not None and endpoint.price_per_million is None:
                raise BudgetError(
                    f"the price of {endpoint.described} is unknown. Set price_per_million in its entry in "
                    "config/models.yaml."
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
        result = probe_endpoint(model, EndpointClient(name, endpoint, self.get_budget(endpoint), notify=notify))
        if record_probe(endpoint, model.identity.tokenizer_fingerprint, result.seen, paths):
            notify(f"the model on the server of {name} has changed. Earlier results are not used for the new model.")
        self._probed[endpoint] = result
        # Commands that list many models probe no server. They read the last probed model from the cards.
        write_card(load_tokenized(model.entry, paths), paths)
