"""Packages of examples/ as installed packages: modules and dist-info in a folder of the path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXAMPLE, STAGE_EXAMPLE = (ROOT / "examples" / name for name in ("detector_package", "stage_package"))
DETECTORS, SOURCES = "corpus_audit.detectors", "corpus_audit.sources"


def _read_project(example: Path) -> Mapping[str, Any]:
    project: Mapping[str, Any] = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


POINTS: Mapping[str, Mapping[str, str]] = _read_project(EXAMPLE)["entry-points"]


def install(
    site: Path,
    version: str = "1.0",
    points: Mapping[str, Mapping[str, str]] | None = None,
    example: Path = EXAMPLE,
) -> Path:
    """Install a version of a package with entry points into the folder ``site``, and return the folder."""
    site.mkdir(parents=True, exist_ok=True)
    project = _read_project(example)
    name = project["name"].replace("-", "_")
    shutil.copytree(example / name, site / name, dirs_exist_ok=True)
    for earlier in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(earlier)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n", "utf-8")
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "".join(f"{entry} = {value}\n" for entry, value in own.items())
            for group, own in (project["entry-points"] if points is None else points).items()
        ),
        "utf-8",
    )
    return site


def run_with(site: Path | None, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python process that imports from ``site``."""
    path = os.pathsep.join(map(str, [*([site] if site is not None else []), ROOT]))
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def command_with(site: Path | None, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `corpus-audit` in a process that imports from ``site``."""
    return run_with(site, "-c", "from audit_pipeline.cli import main; main()", *arguments, **environment)


def evaluated_with(site: Path | None, imports: str, expression: str) -> Any:
    """Return the value of a Python expression in a process that imports from ``site``."""
    done = run_with(site, "-c", f"import json\n{imports}\nprint(json.dumps({expression}))")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
