"""What stands at the root of the repository, so that nothing that a test or tool left there is committed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = {
    *(".dockerignore", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff"),
    *("CONTRIBUTING.md", "LICENSE"),
    *("Makefile", "README.md", "constraints.txt", "mkdocs.yml", "pyproject.toml", "workspace.yaml"),
}
FOLDERS = {
    *(".ci", "assets", "audit_pipeline", "bench", "config", "corpus_audit", "data", "deploy", "docs", "examples"),
    *("plugins", "tests"),
}


def test_the_root_holds_what_is_known_and_nothing_else() -> None:
    command = ["git", "-C", str(ROOT), "ls-files"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no checkout of the repository")
    assert {line.split("/")[0] for line in listed.stdout.splitlines()} == FILES | FOLDERS
