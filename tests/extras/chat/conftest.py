"""The fixture that the tests of chat models share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from chat_server import ChatServer


@pytest.fixture
def chat_server() -> Iterator[Callable[..., ChatServer]]:
    """Return a function that starts servers. They stop at the end of the test."""
    with ExitStack() as running:
        yield lambda *answer: running.enter_context(ChatServer(*answer))
