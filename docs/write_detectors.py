"""Writes the pages of docs/detectors.md anew from the detectors: make docs."""

from pathlib import Path

from audit_pipeline.detectors.page import written_into
from audit_pipeline.detectors.registry import REGISTRY

if __name__ == "__main__":
    page = Path(__file__).with_name("detectors.md")
    page.write_text(written_into(page.read_text(encoding="utf-8"), list(REGISTRY.values())), encoding="utf-8")
