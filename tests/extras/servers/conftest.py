"""A tiny model that counts, its server, and entries for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_endpoint import FakeEndpoint, save_counting_model
from tiny_models import forward_of, tokenized

from audit_pipeline.extras.servers.backend import EndpointBackend
from audit_pipeline.extras.servers.probe import ProbeResult, probe_endpoint
from audit_pipeline.extras.servers.prompt_client import EndpointClient
from audit_pipeline.http.faults import RetryPolicy
from audit_pipeline.models.tokenized_model import TokenizedModel
from audit_pipeline.models.usage_budget import Budget
from audit_pipeline.token_statistics.forward import ForwardPass

QUICK = RetryPolicy(attempts=3, first_pause=0.01, max_pause=0.01)
Loaded = tuple[TokenizedModel, ForwardPass]
Entry = Callable[..., TokenizedModel]


@pytest.fixture(scope="session")
def counting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_counting_model(tmp_path_factory.mktemp("counting") / "plain")


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder for what is the same in all tests: converted tokenizers, and rows computed in this process."""
    return tmp_path_factory.mktemp("counting-data")


@pytest.fixture(scope="session")
def counting(counting_folder: Path, kept: Path) -> Loaded:
    """The model in memory, as every server runs it."""
    model = tokenized(counting_folder, kept)
    return model, forward_of(model)


@pytest.fixture(scope="session")
def starting(tmp_path_factory: pytest.TempPathFactory, kept: Path) -> Loaded:
    """The same, with a tokenizer that puts a start token in front by itself."""
    folder = save_counting_model(tmp_path_factory.mktemp("counting") / "starting", adds_bos=True)
    model = tokenized(folder, kept)
    return model, forward_of(model)


@pytest.fixture
def server(counting: Loaded, one_thread: None) -> Iterator[FakeEndpoint]:
    with FakeEndpoint(*counting) as running:
        yield running


@pytest.fixture
def behind(server: FakeEndpoint, kept: Path) -> Entry:
    """The model behind the server, by dialect and what else an endpoint or an entry says."""

    def make(dialect: str = "vllm", entry: dict[str, Any] | None = None, **endpoint: Any) -> TokenizedModel:
        given = {"url": server.url, "model": "tiny", "dialect": dialect, **endpoint}
        if dialect == "llama_cpp":
            server.form, server.bos, server.takes = "llama_cpp", server.model.start_token_id, (str,)
            entry = {"start_token_policy": "tokenizer", **(entry or {})}
        fields = {"window": 100, **(entry or {}), "backend": "openai", "endpoint": given}
        return tokenized(server.model.located.folder, kept, **fields)

    return make


@pytest.fixture
def asking() -> Callable[..., EndpointClient]:
    """A client that does not wait long."""

    def make(
        model: TokenizedModel, budget: Budget | None = None, notify: Callable[[str], None] = print
    ) -> EndpointClient:
        assert model.entry.endpoint is not None
        return EndpointClient(model.entry.name, model.entry.endpoint, budget or Budget(), notify=notify, patience=QUICK)

    return make


@pytest.fixture
def probe(behind: Entry, asking: Callable[..., EndpointClient]) -> Callable[..., ProbeResult]:
    """Try out the model behind the server."""

    def make(*arguments: Any, **given: Any) -> ProbeResult:
        model = behind(*arguments, **given)
        return probe_endpoint(model, asking(model))

    return make


@pytest.fixture
def ready(behind: Entry, asking: Callable[..., EndpointClient]) -> Callable[..., EndpointBackend]:
    """The model behind the server, probed; ``probed`` is what the probe would find."""

    def make(
        *arguments: Any,
        budget: Budget | None = None,
        notify: Callable[[str], None] = print,
        probed: ProbeResult | None = None,
        **given: Any,
    ) -> EndpointBackend:
        model = behind(*arguments, **given)
        client = asking(model, budget, notify)
        return EndpointBackend(model, client, probed or probe_endpoint(model, client))

    return make
