"""The observed input ``source_settings``: what people set for a source, and the files that it reads."""

from __future__ import annotations

from audit_pipeline.pipeline.stage import observed_input
from audit_pipeline.pipeline.workspace_state import WorkspaceState


@observed_input(dimension="source", group="1_sources", kinds={"yaml"})
def source_settings(source: str, state: WorkspaceState) -> str:
    """The settings of a source in config/sources.yaml, and the names, sizes and times of the files that it reads."""
    return state.source_settings.digest_for(source)
