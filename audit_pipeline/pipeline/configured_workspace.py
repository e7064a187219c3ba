"""The planner of everything that the configuration requests, with models as recorded when they were last loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from audit_pipeline.benchmarks.config import BenchmarkSpec, exclude_on_request
from audit_pipeline.models.config import ModelEntry, exclude_control_models
from audit_pipeline.pipeline.plan import Planner
from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.pipeline.remembered_models import find_seen_models
from audit_pipeline.pipeline.whole_configuration import Configuration
from audit_pipeline.pipeline.workspace_state import Scope, WorkspaceState
from audit_pipeline.store.paths import DataPaths


def read_configured_planner(config: Configuration, paths: DataPaths, *, on_request: bool = False) -> Planner:
    """Return the planner of the configured benchmarks and models.

    No model is loaded. A model counts as new if its entry or files, or those of its reference model, changed since it
    was last loaded.

    Args:
        config: The configuration.
        paths: The data folder.
        on_request: Whether to include the models of controls, and the benchmarks that are audited only on request.

    Raises:
        ConfigError: If a file of the configuration cannot be read.
    """
    entries: Mapping[str, ModelEntry] = config.models
    specs: Mapping[str, BenchmarkSpec] = config.benchmarks
    if not on_request:
        entries = exclude_control_models(config.models)
        specs = exclude_on_request(config.benchmarks)
    seen = find_seen_models(entries, paths)
    for name, model in list(seen.items()):
        reference = seen.get(model.entry.reference_model or name, model)
        if not (model.is_current and reference.is_current):
            seen[name] = replace(model, identity=replace(model.identity, model_fingerprint="new"))
    return Planner(WorkspaceState(paths, specs, entries, seen), STAGES)


def build_configured_scope(planner: Planner) -> Scope:
    """Return the scope of all models of a planner on all its benchmarks."""
    return Scope.of_all_pairs(planner.state.specs, planner.state.entries)
