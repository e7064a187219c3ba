"""Fixtures that the tests of servers share: a tiny model that counts, its server, and back ends for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_endpoint import FakeEndpoint, save_counting_model
from tiny_models import forward_of, tokenized

from audit_pipeline.extras.servers.backend import EndpointBackend
from audit_pipeline.extras.servers.dialects import EndpointClient
from audit_pipeline.extras.servers.probe import ProbeResult, probe_endpoint
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.usage_budget import Budget
from audit_pipeline.token_statistics.forward import ForwardPass

Loaded = tuple[TokenizedModel, ForwardPass]


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder for converted tokenizers and for rows that all tests share."""
    return tmp_path_factory.mktemp("counting-data")


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Loaded:
    model = tokenized(save_counting_model(tmp_path_factory.mktemp("counting") / "plain"), kept)
    return model, forward_of(model)


@pytest.fixture
def server(counting: Loaded, one_thread: None) -> Iterator[FakeEndpoint]:
    with FakeEndpoint(*counting) as running:
        yield running


@pytest.fixture
def behind(kept: Path, request: pytest.FixtureRequest) -> Callable[..., TokenizedModel]:
    """Return a function that builds the model of a server. Its keywords are settings of the endpoint."""

    def build(
        dialect: str = "vllm",
        entry: dict[str, Any] | None = None,
        *,
        server: FakeEndpoint | None = None,
        **endpoint: Any,
    ) -> TokenizedModel:
        server = server or request.getfixturevalue("server")
        settings = {"url": server.url, "model": "tiny", "dialect": dialect, **endpoint}
        fields = {"window": 100, **(entry or {}), "backend": "openai", "endpoint": settings}
        if dialect == "llama_cpp":
            server.form, server.bos, server.takes = "llama_cpp", server.model.start_token_id, (str,)
            fields["start_token_policy"] = "tokenizer"
        return tokenized(server.model.located.folder, kept, **fields)

    return build


def make_client(
    model: TokenizedModel, budget: Budget | None = None, notify: Callable[[str], None] = print
) -> EndpointClient:
    assert model.entry.endpoint is not None
    patience = RetryPolicy(attempts=3, first_pause=0.01, max_pause=0.01)
    return EndpointClient(model.entry.name, model.entry.endpoint, budget or Budget(), notify=notify, patience=patience)


@pytest.fixture
def probe(behind: Callable[..., TokenizedModel]) -> Callable[..., ProbeResult]:
    """Return a function that probes a server."""

    def run(*arguments: Any, **settings: Any) -> ProbeResult:
        model = behind(*arguments, **settings)
        return probe_endpoint(model, make_client(model))

    return run


@pytest.fixture(scope="session")
def probes() -> dict[object, ProbeResult]:
    """Return the results of probes. They are equal for all servers of the same model and the same kind."""
    return {}


@pytest.fixture
def ready(
    behind: Callable[..., TokenizedModel], probes: dict[object, ProbeResult], request: pytest.FixtureRequest
) -> Callable[..., EndpointBackend]:
    """Return a function that builds the back end of a server. The server is probed once per session and kind."""

    def build(
        dialect: str = "vllm",
        entry: dict[str, Any] | None = None,
        *,
        server: FakeEndpoint | None = None,
        budget: Budget | None = None,
        notify: Callable[[str], None] = print,
        **endpoint: Any,
    ) -> EndpointBackend:
        server = server or request.getfixturevalue("server")
        model = behind(dialect, entry, server=server, **endpoint)
        kind = (server.model.located.folder, dialect, tuple(server.takes), model.entry.start_token_policy)
        if kind not in probes:
            probes[kind] = probe_endpoint(model, make_client(model))
            server.requests.clear()
        return EndpointBackend(model, make_client(model, budget, notify), probes[kind])

    return build
