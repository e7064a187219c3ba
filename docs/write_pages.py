"""Rewrites the generated parts of pages, and the figures: make docs.

What belongs here: which file holds what. What does not: how a page is made (docs/writers).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audit_pipeline.cli import main
from audit_pipeline.detectors.registry import REGISTRY
from docs.writers.backends import format_backend_tables
from docs.writers.benchmarks import benchmarks_page
from docs.writers.commands import commands_page
from docs.writers.configuration import configuration_page
from docs.writers.conventions import format_start_tokens
from docs.writers.detectors import format_array_table, insert_detector_pages
from docs.writers.figures import figures
from docs.writers.markdown import insert_between_marks
from docs.writers.tables import tables_page

DOCS = Path(__file__).parent


def pages() -> Mapping[Path, str]:
    """Return the expected content of every page with generated parts, by its file."""
    detectors = list(REGISTRY.values())
    of_detectors = DOCS / "detectors.md"
    of_backends = DOCS / "backends.md"
    adding = DOCS / "adding-a-detector.md"
    conventions = DOCS / "conventions.md"
    reference = DOCS / "reference"
    return {
        of_detectors: insert_detector_pages(of_detectors.read_text(encoding="utf-8"), detectors),
        adding: insert_between_marks(adding.read_text(encoding="utf-8"), format_array_table()),
        of_backends: insert_between_marks(of_backends.read_text(encoding="utf-8"), format_backend_tables(detectors)),
        conventions: insert_between_marks(conventions.read_text(encoding="utf-8"), format_start_tokens()),
        reference / "commands.md": commands_page(main),
        reference / "configuration.md": configuration_page(),
        reference / "tables.md": tables_page(),
        reference / "benchmarks.md": benchmarks_page(),
    }


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
    for name, content in figures().items():
        (DOCS / "figures" / name).write_bytes(content)
