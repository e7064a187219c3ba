"""One asset for every stage, for that of documents one for every source (audit_pipeline/operate/stages/registry.py)."""

from audit_pipeline.operate.dagster.stage_assets import build_stage_assets

STAGE_ASSETS = build_stage_assets()
