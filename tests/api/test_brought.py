"""Detectors and sources that an installed package brings (examples/detector_package)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from installed_example import DETECTORS, EXAMPLE, POINTS, command_with, evaluated_with, install, run_with

from assets.scores import scores
from audit_pipeline.operate.situation import CODE
from audit_pipeline.operate.stages.scores import SCORES_VERSION


@pytest.mark.slow
def test_a_brought_detector_is_listed_with_its_package_and_scored(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    site = install(tmp_path / "site")
    (tmp_path / "texts.jsonl").write_text('{"text": "the harbour was closed"}\n{"text": ""}\n', encoding="utf-8")
    listed = command_with(site, "detectors", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    packages = {row["detector"]: row["package"] for row in json.loads(listed.stdout)["detectors"]}
    assert packages["likely_tokens"] == "another-name==1.0"
    assert packages["loss"] is None
    out = tmp_path / "scores.parquet"
    options = ["--model", str(tiny_folder("llama")), "--texts", str(tmp_path / "texts.jsonl"), "--out", str(out)]
    done = command_with(
        site, "score", *options, "--detectors", "likely_tokens,loss", CORPUS_AUDIT_DATA=str(tmp_path / "data")
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in pq.read_table(out).to_pylist() if row["detector"] == "likely_tokens"]
    [first] = [row for row in rows if row["example_index"] == 0]
    assert first["status"] == "ok"
    assert 0 <= first["score"] <= 1


def test_the_version_of_the_package_is_part_of_that_of_the_scores(tmp_path: Path) -> None:
    """So the planner finds the scores of another version stale (tests/operate/test_plan.py)."""
    imports = "from audit_pipeline.operate.stages.scores import SCORES_VERSION"
    for version in ("1.0", "1.1"):
        found = evaluated_with(install(tmp_path, version), imports, "SCORES_VERSION")
        assert found == f"{SCORES_VERSION}+brought-example=={version}"
    assert "+" not in SCORES_VERSION, "without the package nothing of it is there"
    assert CODE["scores"] == SCORES_VERSION
    assert set(scores.code_versions_by_key.values()) == {SCORES_VERSION}


@pytest.mark.slow
def test_pip_makes_an_installable_package_of_the_example_whatever_it_is_called(tmp_path: Path) -> None:
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(tmp_path / "site")]
    copy = shutil.copytree(EXAMPLE, tmp_path / "copy")
    project = copy / "pyproject.toml"
    project.write_text(project.read_text().replace('name = "brought-example"', 'name = "another-name"'))
    done = run_with(None, "-m", "pip", "install", *options, str(copy))
    assert done.returncode == 0, done.stderr
    listed = command_with(tmp_path / "site", "detectors", "--json")
    packages = {row["detector"]: row["package"] for row in json.loads(listed.stdout)["detectors"]}
    assert packages["likely_tokens"] == "another-name==1.0"


@pytest.mark.slow
def test_a_brought_source_is_an_asset_and_can_be_fetched(tmp_path: Path) -> None:
    site = install(tmp_path)
    imports = (
        "from audit_pipeline.sources.config import require_source\n"
        "from audit_pipeline.definitions import defs\nfrom pathlib import Path\n"
        "source = require_source('gauges')\nharvest = source.fetch(source.settings(), Path('.'))\n"
        "keys = {key.to_user_string() for key in defs().resolve_asset_graph().get_all_asset_keys()}"
    )
    expression = "[harvest.documents[0].name, 'documents/gauges' in keys]"
    assert evaluated_with(site, imports, expression) == ["first", True]


FAULTY = {
    "a": ("brought_example.nowhere:X", "it cannot be imported (ModuleNotFoundError: "),
    "b": ("brought_example.detectors:NOBODY", "it cannot be imported (AttributeError: "),
    "c": ("brought_example.detectors:np", "brought_example.detectors:np is no Detector but a module"),
    "twice": (
        "brought_example.detectors:LIKELY",
        "there is one named 'likely_tokens' already: give yours another name",
    ),
}


def test_what_cannot_be_used_is_one_line_each_and_the_others_go_on(tmp_path: Path) -> None:
    points = {**POINTS[DETECTORS], **{name: value for name, (value, _) in FAULTY.items()}}
    done = command_with(install(tmp_path, points={DETECTORS: points}), "detectors", "--json")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == len(FAULTY)
    for line, (name, (_, told)) in zip(lines, FAULTY.items(), strict=True):
        assert line.startswith(f"{name} of brought-example==1.0 (corpus_audit.detectors) is left out: {told}")
    names = [row["detector"] for row in json.loads(done.stdout)["detectors"]]
    assert {"loss", "likely_tokens"} <= set(names)
