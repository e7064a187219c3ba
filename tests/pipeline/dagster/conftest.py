"""Fixtures of the orchestration's tests: a Dagster instance as the command line makes it."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from made_workspace import Workspace

from audit_pipeline.pipeline.dagster.instance import open_instance


@pytest.fixture
def instance(workspace: Workspace) -> Iterator[dg.DagsterInstance]:
    """As the command line opens it, of the home of the workspace."""
    with open_instance(workspace.paths) as made:
        yield made
