"""The built site: its search works without a server, and its pages load nothing from other sites."""

from __future__ import annotations

import json
import os
import re
import shutil
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
    head = head.replace("docs/writers/search.py", str(ROOT / "docs" / "writers" / "search.py"))
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
    assert "twins.html#canaries" in found
    scripts = re.findall(r"<script src=\"?([^\"\s>]+)", (site / "index.html").read_text(encoding="utf-8"))
    assert any("iframe-worker" in one for one in scripts)


# The theme's own worker, spoken to as its pages do: message 0 hands it the index, message 2 a question.
SEARCHING = """
const fs = require("fs"), vm = require("vm"), [worker, index, ...questions] = process.argv.slice(1);
const about = JSON.parse(fs.readFileSync(index, "utf8")), warnings = [];
let answer, take;
const inside = { addEventListener: (_, handler) => { answer = handler; }, postMessage: (message) => take(message) };
inside.console = { warn: (...words) => warnings.push(words.join(" ")) };
inside.self = inside;
vm.runInNewContext(fs.readFileSync(worker, "utf8"), inside);
const send = (type, data) => new Promise((resolve) => { take = resolve; answer({ data: { type, data } }); });
(async () => {
  await send(0, { ...about, options: { suggest: true } });
  const found = {};
  for (const question of questions)
    found[question] = (await send(2, question)).data.items.map((page) => page.map((part) => part.location));
  console.log(JSON.stringify({ found, warnings }));
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="the site's search runs in node, which is not installed")
def test_the_search_finds_words_that_the_pages_hold(site: Path) -> None:
    [worker] = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    index = site / "search" / "search_index.json"
    titles = [one["title"] for one in json.loads(index.read_text(encoding="utf-8"))["docs"]]
    words = sorted({word for title in titles for word in re.findall(r"[a-z0-9]+", title.lower())})
    assert len(words) > 400
    asked = ["p-value", "p value", "p-values", "min_k++", *words]
    done = subprocess.run(
        ["node", "-e", SEARCHING, str(worker), str(index), *asked], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["warnings"] == []
    for question in ("p-value", "p value", "p-values"):
        pages = [part for page in told["found"][question] for part in page]
        assert "statistics-explained.html#4-p-values-and-why-many-of-them-need-q-values" in pages
    assert told["found"]["min_k++"]


def test_the_fault_of_the_search_is_mended_in_the_built_site(site: Path) -> None:
    [worker] = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    assert 'e=e+s+o.id+","}' in worker.read_text(encoding="utf-8")
