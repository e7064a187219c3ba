"""Fixtures that the tests of extraction share."""

from __future__ import annotations

import pytest
from taught import Taught, teach
from tiny_models import single_threaded


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    """Return a tiny model that was trained on one passage."""
    with single_threaded():
        return teach(tmp_path_factory.mktemp("taught"))
