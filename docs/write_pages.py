"""Writes the pages of docs/detectors.md and the tables of docs/backends.md anew from the declarations: make docs."""

from pathlib import Path

from audit_pipeline.detectors.page import between_marks, written_into
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.scoring.backends_page import tables

if __name__ == "__main__":
    detectors = list(REGISTRY.values())
    page = Path(__file__).with_name("detectors.md")
    page.write_text(written_into(page.read_text(encoding="utf-8"), detectors), encoding="utf-8")
    page = Path(__file__).with_name("backends.md")
    page.write_text(between_marks(page.read_text(encoding="utf-8"), tables(detectors)), encoding="utf-8")
