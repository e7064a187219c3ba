"""Servers of models that answer in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from chat_server import ChatServer


@pytest.fixture
def chat_server() -> Iterator[Callable[..., ChatServer]]:
    """Starts servers that answer as a function of the prompt says; they stop with the test."""
    with ExitStack() as running:
        yield lambda *answer: running.enter_context(ChatServer(*answer))
