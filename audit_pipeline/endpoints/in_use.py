"""The endpoints that one command, or one run, asks: a budget each, and which model was found behind each.

What belongs here: asking a server, before anything is planned or run, whether the model behind it is still the one that
it was, and what is told of it. What does not: what is asked (probe.py), what counts as another model
(models/behind.py), which limits hold (limits.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.endpoints.limits import Limits
from audit_pipeline.errors import AuditError, ModelError
from audit_pipeline.models.behind import note
from audit_pipeline.models.config import Endpoint, ModelEntry, load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer, write_card

if TYPE_CHECKING:
    from audit_pipeline.endpoints.backend import EndpointBackend
    from audit_pipeline.endpoints.budget import Budget
    from audit_pipeline.endpoints.probe import Probed

Tell = Callable[[str], None]


def sent_to(endpoint: Endpoint) -> str:
    """Who gets to see the texts, in words."""
    return f"the texts are sent to {urlsplit(endpoint.url).netloc}: whoever runs that server can read and keep them"


class Endpoints:
    """What a command, or run, has asked and sent so far, with a budget for each endpoint.

    ``limits`` take the place of those in the entry of the model that is loaded first. None, and where an endpoint's own
    are stricter (a reference model's): those of its entry.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._budgets: dict[Endpoint, Budget] = {}
        self._probed: dict[Endpoint, Probed] = {}

    def load(self, entry: ModelEntry, paths: DataPaths, tell: Tell) -> TokenizedModel:
        """The model as load_tokenizer gives it, for planning and running it now.

        A model behind an interface is asked first whether it is still the one that it was, and so is a reference model
        behind one; ``tell`` hears where texts are sent, and of a change. Raises what load_tokenizer raises; ModelError
        where the server's answers cannot be used, TransientError where it cannot be reached, BudgetError where the
        limits do not suffice for asking.
        """
        for one in (entry, _reference(entry)):
            if one is not None and one.endpoint is not None and one.endpoint not in self._probed:
                self._ask(one.endpoint, load_tokenizer(one, paths), paths, tell)
        return load_tokenizer(entry, paths)

    def open(self, model: TokenizedModel, paths: DataPaths, tell: Tell) -> EndpointBackend:
        """The model ready to be run. Raises as :meth:`load` does, and ModelError where another model was just found
        behind the endpoint than ``model``, as it was planned with."""
        # Imported where a server is asked: planning what is on this machine needs no client.
        from audit_pipeline.endpoints.backend import open_endpoint  # noqa: PLC0415

        endpoint = model.entry.endpoint
        if endpoint is None:
            raise ModelError(f"{model.entry.name} is behind no endpoint")
        if endpoint not in self._probed:
            self._ask(endpoint, model, paths, tell)
        now = load_tokenizer(model.entry, paths).identity.model_fingerprint
        if now != model.identity.model_fingerprint:
            raise ModelError(f"the model behind the endpoint of {model.entry.name} changed meanwhile: run it again")
        return open_endpoint(model, self.budget(endpoint), tell, self._probed[endpoint])

    def budget(self, endpoint: Endpoint) -> Budget:
        """The budget of all that is sent to ``endpoint``."""
        from audit_pipeline.endpoints.budget import Budget  # noqa: PLC0415

        if endpoint not in self._budgets:
            limits = self._limits if not self._budgets else self._limits.or_stricter(endpoint)
            cost = limits.max_cost if endpoint.price_per_million is not None else None
            self._budgets[endpoint] = Budget.of(endpoint, limits.max_tokens, cost)
        return self._budgets[endpoint]

    @property
    def tokens(self) -> int:
        """The tokens that were sent, to all endpoints."""
        return sum(one.spent for one in self._budgets.values())

    @property
    def cost(self) -> float:
        """What they cost, where prices are known."""
        return sum(one.cost for one in self._budgets.values())

    def _ask(self, endpoint: Endpoint, model: TokenizedModel, paths: DataPaths, tell: Tell) -> None:
        from audit_pipeline.endpoints.client import key_of  # noqa: PLC0415
        from audit_pipeline.endpoints.probe import client_of, probe  # noqa: PLC0415

        # Nothing is sent without the key: that is said first.
        key_of(endpoint)
        name = model.entry.name
        tell(f"{name}: {sent_to(endpoint)}")
        found = probe(model, client_of(model, self.budget(endpoint), tell))
        if note(endpoint, model.identity.tokenizer_fingerprint, found.seen, paths):
            tell(f"the model behind the endpoint of {name} changed: what was computed before is not used for it")
        self._probed[endpoint] = found
        # Who looks at many models asks no server: they see on the cards which one was found last.
        write_card(load_tokenizer(model.entry, paths), paths)


def _reference(entry: ModelEntry) -> ModelEntry | None:
    if entry.reference_model is None:
        return None
    try:
        return resolve_model(entry.reference_model, load_models())
    except AuditError:
        # Whoever runs it says what is wrong with it; an audit goes on without.
        return None
