"""The site as it is built: its search has an index without a server, and nothing is fetched from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

FETCHED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\"\s>]+)")


def build(*options: str) -> subprocess.CompletedProcess[str]:
    """As the Makefile builds it."""
    [words] = re.findall(r"^SITE := \$\(BIN\)/mkdocs (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "mkdocs", *words.split(), *options]
    surroundings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build("--site-dir", str(folder))
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("[x](nowhere.md)", "target is not found"),
        ("[x](index.md#nowhere)", "no such anchor"),
        ("", "not included in the"),
    ],
    ids=["link", "anchor", "page"],
)
def test_what_leads_nowhere_fails_the_build(page: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{page}\n")
    if not page:
        (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    head, _ = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")
    (tmp_path / "mkdocs.yml").write_text(f"{head}\nnav:\n  - index.md\n")
    built = build("--config-file", str(tmp_path / "mkdocs.yml"))
    assert built.returncode != 0
    assert told in built.stderr


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    assert [(page.name, found) for page in pages for found in FETCHED.findall(page.read_text(encoding="utf-8"))] == []


def test_the_search_has_its_index_as_a_script(site: Path) -> None:
    text = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("var __index = "))
    found = {one["location"] for one in index["docs"] if "canaries" in one["text"]}
    assert "corpus-tests.html#canaries" in found
    scripts = re.findall(r"<script src=\"?([^\"\s>]+)", (site / "index.html").read_text(encoding="utf-8"))
    assert any("iframe-worker" in one for one in scripts)
