"""Detectors and sources of an installed package (examples/detector_package)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from installed_example import DETECTORS, EXAMPLE, POINTS, SOURCES, command_with, evaluated_with, install, run_with

from audit_pipeline.pipeline.registry import get_stage
from audit_pipeline.scoring.pair_scores import SCORES_VERSION


@pytest.mark.slow
def test_an_installed_detector_is_listed_with_its_package_and_scored(
    tmp_path: Path, tiny_folder: Callable[[str], Path]
) -> None:
    site = install(tmp_path / "site")
    (tmp_path / "texts.jsonl").write_text('{"text": "the harbour was closed"}\n{"text": ""}\n', encoding="utf-8")
    listed = command_with(site, "detectors", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    packages = {row["detector"]: row["package"] for row in json.loads(listed.stdout)["detectors"]}
    assert packages["likely_tokens"] == "brought-example==1.0"
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


def test_the_version_of_the_scores_includes_the_package(tmp_path: Path) -> None:
    """Therefore scores of another version are stale."""
    imports = "from audit_pipeline.scoring.pair_scores import SCORES_VERSION"
    found = evaluated_with(install(tmp_path, "1.1"), imports, "SCORES_VERSION")
    assert found == f"{SCORES_VERSION}+brought-example==1.1"
    assert "+" not in SCORES_VERSION, "without the package nothing of it is there"
    assert get_stage("scores").code_version == SCORES_VERSION


@pytest.mark.slow
def test_pip_installs_the_example_under_any_name(tmp_path: Path) -> None:
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
def test_an_installed_source_is_an_asset_and_can_be_fetched(tmp_path: Path) -> None:
    site = install(tmp_path)
    imports = (
        "from audit_pipeline.sources.config import require_source\n"
        "from audit_pipeline.definitions import defs\nfrom pathlib import Path\n"
        "source = require_source('gauges')\ndocuments = list(source.fetch(source.settings(), Path('.')))\n"
        "keys = {key.to_user_string() for key in defs().resolve_asset_graph().get_all_asset_keys()}"
    )
    expression = "[documents[0].name, 'documents/gauges' in keys]"
    assert evaluated_with(site, imports, expression) == ["first", True]


FAULTY = {
    "a": ("brought_example.nowhere:X", "ModuleNotFoundError: "),
    "b": ("brought_example.detectors:NOBODY", "AttributeError: "),
    "c": ("brought_example.detectors:np", "TypeError: brought_example.detectors:np is a module, not a Detector"),
    "exits": ("brought_example.exits:X", "SystemExit: no"),
    "no_default": ("brought_example.faulty:NO_DEFAULT", "ConfigError: '-1' is not a"),
    "no_name": ("brought_example.faulty:NO_NAME", "ValueError: the plug-in's name is None"),
    "no_need": ("brought_example.faulty:NO_NEED", "TypeError: the detector reads unknown"),
    "no_text": ("brought_example.faulty:NO_TEXT", "TypeError: the field summary is a int"),
    "path": ("brought_example.faulty:PATH", "ValueError: the plug-in's name is '../../evil'"),
    "reads": ("brought_example.faulty:READS", "TypeError: the detector reads unknown"),
    "twice": (
        "brought_example.detectors:LIKELY",
        "ValueError: the name 'likely_tokens' is taken. Choose another name.",
    ),
}


FAULTY_MODULE = """
from dataclasses import replace
from brought_example.detectors import LIKELY
from brought_example.sources import GAUGES
from audit_pipeline.detectors.detector import Outcome, Parameter

def fail(*_):
    raise KeyError("of mine")

below = Parameter(-1, (1,), "d", "a number above 0", lambda value: value > 0)
NO_DEFAULT = replace(LIKELY, parameters={"k": below})
NO_NAME = replace(LIKELY, name=None)
NO_NEED = replace(LIKELY, needs=("more",))
NO_TEXT = replace(LIKELY, summary=7)
PATH = replace(LIKELY, name="../../evil")
READS = replace(LIKELY, reads=lambda setting: ("nonsense",))
RAISES = replace(LIKELY, name="raises", compute=fail)
SHORT = replace(LIKELY, name="short", compute=lambda statistics, settings: [])
NUMBERS = replace(LIKELY, name="numbers", compute=lambda statistics, settings: [1.0 for _ in settings])
SOURCE = replace(GAUGES, fetch=fail)
NOTHING = replace(GAUGES, name="nothing", fetch=lambda settings, downloads: None)
NO_SETTINGS = replace(GAUGES, name="no_settings", settings=dict)
"""


def install_faulty(site: Path, points: Mapping[str, Mapping[str, str]]) -> Path:
    install(site, points=points)
    (site / "brought_example" / "faulty.py").write_text(FAULTY_MODULE, encoding="utf-8")
    (site / "brought_example" / "exits.py").write_text("raise SystemExit('no')", encoding="utf-8")
    return site


def test_an_error_of_an_installed_detector_is_the_reason_of_its_scores(tmp_path: Path) -> None:
    """The reason names the detector and its package."""
    names = ("raises", "short", "numbers")
    site = install_faulty(tmp_path, {DETECTORS: {name: f"brought_example.faulty:{name.upper()}" for name in names}})
    imports = (
        "import numpy as np\nfrom audit_pipeline.detectors.registry import get_detector\n"
        "from audit_pipeline.detectors.detector_inputs import TextStatistics\n"
        "text = TextStatistics('a', {'logprob': np.array([-1.0], np.float32)})\n"
    )
    found = evaluated_with(site, imports, f"[get_detector(name).score(text, [{{}}])[0] for name in {names!r}]")
    whole = "compute did not return a list of 1 Outcome objects"
    for name, why, outcome in zip(names, ("KeyError: 'of mine'", *[f"TypeError: {whole}"] * 2), found, strict=True):
        assert outcome == [None, "failed", f"the detector {name} of brought-example==1.0 failed ({why})"]


def test_an_error_of_an_installed_source_is_one_line_with_its_name(tmp_path: Path) -> None:
    names = {"gauges": "SOURCE", "nothing": "NOTHING", "a": "NO_SETTINGS"}
    points = {name: f"brought_example.faulty:{value}" for name, value in names.items()}
    site = install_faulty(tmp_path / "site", {SOURCES: points})
    fetch = (
        "from pathlib import Path\nfrom audit_pipeline.errors import SourceError\n"
        "from audit_pipeline.sources.config import require_source\n"
        "def fetch(name):\n    source = require_source(name)\n    try:\n"
        "        return list(source.fetch(source.settings(), Path('.')))\n    except SourceError as error:\n"
        "        return str(error)"
    )
    done = run_with(site, "-c", f"{fetch}\nprint(fetch('gauges'), fetch('nothing'), sep='\\n')")
    remedy = ". Check its section in config/sources.yaml, or report the error to the authors of the package."
    assert done.stdout.splitlines() == [
        f"the source gauges of the package brought-example==1.0 failed (KeyError: 'of mine'){remedy}",
        "the source nothing of the package brought-example==1.0 failed (TypeError: 'NoneType' object is not iterable)"
        f"{remedy}",
    ]
    assert "a of brought-example==1.0 (corpus_audit.sources) is skipped (" in done.stderr


def test_each_unusable_plugin_is_skipped_with_one_line(tmp_path: Path) -> None:
    points = {**POINTS[DETECTORS], **{name: value for name, (value, _) in FAULTY.items()}}
    done = command_with(install_faulty(tmp_path, {DETECTORS: points}), "detectors", "--json")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == len(FAULTY)
    for line, (name, (_, told)) in zip(lines, FAULTY.items(), strict=True):
        skipped = f"the plug-in {name} of brought-example==1.0 (corpus_audit.detectors) is skipped"
        assert line.startswith(f"{skipped} ({told}")
    names = [row["detector"] for row in json.loads(done.stdout)["detectors"]]
    assert {"loss", "likely_tokens"} <= set(names)
