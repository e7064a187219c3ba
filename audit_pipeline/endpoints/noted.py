"""Asking a server, before anything is planned or run, whether the model behind it is still the one that it was.

What belongs here: the order of asking and keeping, and what is told of it. What does not: what is asked (probe.py),
what counts as another model (models/behind.py).
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.errors import AuditError
from audit_pipeline.models.behind import Seen, note
from audit_pipeline.models.config import Endpoint, ModelEntry, load_models, resolve_model
from audit_pipeline.models.load import TokenizedModel, load_tokenizer


def load_to_run(entry: ModelEntry, paths: DataPaths, tell: Callable[[str], None]) -> TokenizedModel:
    """The model as load_tokenizer gives it, for planning and running it now.

    A model behind an interface is asked first whether it is still the one that it was, and so is a reference model
    behind one; ``tell`` hears where texts are sent, and of a change. Raises what load_tokenizer raises; ModelError
    where the server's answers cannot be used, TransientError where it cannot be reached.
    """
    reference = _reference(entry)
    for one in (entry, reference):
        if one is not None and one.endpoint is not None:
            _ask(one, one.endpoint, paths, tell)
    return load_tokenizer(entry, paths)


def sent_to(endpoint: Endpoint) -> str:
    """Who gets to see the texts, in words."""
    return f"the texts are sent to {urlsplit(endpoint.url).netloc}: whoever runs that server can read and keep them"


def _reference(entry: ModelEntry) -> ModelEntry | None:
    if entry.reference_model is None:
        return None
    try:
        return resolve_model(entry.reference_model, load_models())
    except AuditError:
        # Whoever runs it says what is wrong with it; an audit goes on without.
        return None


def _ask(entry: ModelEntry, endpoint: Endpoint, paths: DataPaths, tell: Callable[[str], None]) -> None:
    # Imported where a server is asked: planning what is on this machine needs no client.
    from audit_pipeline.endpoints.client import Client  # noqa: PLC0415
    from audit_pipeline.endpoints.probe import probe  # noqa: PLC0415

    tell(f"{entry.name}: {sent_to(endpoint)}")
    model = load_tokenizer(entry, paths)
    found = probe(model, Client(endpoint))
    seen = Seen(found.values, found.noise, found.server, found.first_is_null, found.largest_n)
    if note(endpoint, model.identity.tokenizer_fingerprint, seen, paths):
        tell(f"the model behind the endpoint of {entry.name} changed: what was computed before is not used for it")
