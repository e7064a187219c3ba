"""The observed input ``model_files``: the entry and the files of a model."""

from __future__ import annotations

from audit_pipeline.models.fingerprint import entry_version
from audit_pipeline.pipeline.stage import observed_input
from audit_pipeline.pipeline.workspace_state import WorkspaceState
from audit_pipeline.tables import digest


@observed_input(dimension="model", group="3_model_runs", kinds={"yaml", "safetensors"})
def model_files(model: str, state: WorkspaceState) -> str | None:
    """The entry of a model in config/models.yaml, and the names, sizes and times of its files and of those of its
    reference model. No file is opened, so a copy of the same weights counts as a change."""
    entry = state.entries.get(model)
    if entry is None:
        return None
    reference = state.entries.get(entry.reference_model or "")
    if reference is None:
        return entry_version(entry)
    return digest(entry_version(entry), entry_version(reference))[:16]
