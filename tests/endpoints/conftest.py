"""A tiny model that counts, its server, and entries for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_endpoint import FakeEndpoint, save_counting_model
from tiny_models import tokenized

from audit_pipeline.endpoints.budget import Budget
from audit_pipeline.endpoints.client import Client
from audit_pipeline.fetch.retry import RetryPolicy
from audit_pipeline.models.load import TokenizedModel

QUICK = RetryPolicy(attempts=3, first=0.01, longest=0.01)
Entry = Callable[..., TokenizedModel]


@pytest.fixture(scope="session")
def counting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_counting_model(tmp_path_factory.mktemp("counting") / "plain")


@pytest.fixture(scope="session")
def starting_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with a tokenizer that puts a start token in front by itself."""
    return save_counting_model(tmp_path_factory.mktemp("counting") / "starting", adds_bos=True)


@pytest.fixture
def server(counting_folder: Path, tmp_path: Path, one_thread: None) -> Iterator[FakeEndpoint]:
    with FakeEndpoint(counting_folder, tmp_path) as running:
        yield running


@pytest.fixture
def behind(server: FakeEndpoint, counting_folder: Path, tmp_path: Path) -> Entry:
    """The model behind the server, by dialect and what else an endpoint or an entry says."""

    def make(dialect: str = "vllm", entry: dict[str, Any] | None = None, **endpoint: Any) -> TokenizedModel:
        given = {"url": server.url, "model": "tiny", "dialect": dialect, **endpoint}
        if dialect == "llama_cpp":
            server.form, server.bos, server.takes = "llama_cpp", server.model.start_token_id, (str,)
            entry = {"start_token_policy": "tokenizer", **(entry or {})}
        fields = {"window": 100, **(entry or {}), "backend": "openai", "endpoint": given}
        return tokenized(server.model.located.folder, tmp_path, **fields)

    return make


@pytest.fixture
def asking() -> Callable[..., Client]:
    """A client that does not wait long."""

    def make(model: TokenizedModel, budget: Budget | None = None, tell: Callable[[str], None] = print) -> Client:
        assert model.entry.endpoint is not None
        return Client(model.entry.name, model.entry.endpoint, budget or Budget(), tell=tell, patience=QUICK)

    return make
