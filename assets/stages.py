"""Builds one asset for every stage, for that of documents one for every source (pipeline/stages/registry.py)."""

from audit_pipeline.pipeline.dagster.stage_assets import build_stage_assets

STAGE_ASSETS = build_stage_assets()
