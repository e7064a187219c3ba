"""The planner of everything that the configuration asks for, with models as they were seen last."""

from __future__ import annotations

from dataclasses import replace

from audit_pipeline.benchmarks.config import exclude_on_request
from audit_pipeline.models.config import exclude_control_models
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.remembered_models import find_seen_models
from audit_pipeline.pipeline.whole_configuration import Configuration
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.paths import DataPaths


def read_configured_planner(config: Configuration, paths: DataPaths) -> Planner:
    """Return the planner of the configured benchmarks and models, except those on request and those of controls.

    No model is loaded. If a model's entry or files changed since it was loaded last, it is planned as another model.

    Raises:
        ConfigError: If a file of the configuration cannot be read.
    """
    entries = exclude_control_models(config.models)
    seen = {
        name: model if model.is_current else replace(model, identity=replace(model.identity, model_fingerprint="new"))
        for name, model in find_seen_models(entries, paths).items()
    }
    return Planner(WorkspaceState(paths, exclude_on_request(config.benchmarks), entries, seen), STAGES)


def build_configured_scope(planner: Planner) -> Scope:
    """Return the scope of every model of the planner on every benchmark of it."""
    return Scope.of_all_pairs(planner.state.specs, planner.state.entries)
