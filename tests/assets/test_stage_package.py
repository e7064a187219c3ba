"""examples/stage_package as an installed package: its asset, table and report section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from installed_example import STAGE_EXAMPLE, command_with, evaluated_with, install, run_with
from made_workspace import Workspace

from audit_pipeline.pipeline.registry import STAGES
from audit_pipeline.store.paths import model_page_path

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors")
DEFINITIONS = """
from audit_pipeline.definitions import defs
from audit_pipeline.pipeline.whole_configuration import load_configuration
from dagster import AssetKey
d = defs()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install(tmp_path / "site", example=STAGE_EXAMPLE)


@pytest.fixture(autouse=True)
def asked_for(workspace: Workspace) -> None:
    workspace.write_config("stages", {"group_means": {"benchmarks": ["made_8"], "fewest_texts": 1}})


def command(site: Path, *arguments: str) -> str:
    done = command_with(site, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_its_asset_has_partitions_and_checks_and_its_broken_entries_are_named(workspace: Workspace, site: Path) -> None:
    workspace.write_config("stages", {"group_means": {"fewest_texts": 0}, "group_maens": {}})
    asset = "d.resolve_assets_def(AssetKey('group_means'))"
    key = "AssetKey('group_means')"
    partitions, checks, deps, is_in_job, problems = evaluated_with(
        site,
        DEFINITIONS,
        f"[[one.name for one in {asset}.partitions_def.partitions_defs], "
        f"sorted(c.name for c in {asset}.check_specs if c.asset_key == {key}), "
        f"[d.asset_key.to_user_string() for d in {asset}.specs_by_key[{key}].deps], "
        f"{key} in d.resolve_job_def('audit_pairs').asset_layer.selected_asset_keys, "
        "[str(problem) for problem in load_configuration().problems]]",
    )
    assert (partitions, deps, is_in_job) == (["benchmark", "model"], ["scores"], True)
    assert checks == ["every_pair_ran", "some_group_compared", "values_in_limits"]
    [wrong_option, wrong_name] = problems
    assert "fewest_texts" in wrong_option
    assert "group_maens" in wrong_name
    assert "did you mean group_means?" in wrong_name
    assert "group_means" not in {stage.name for stage in STAGES}, "it is installed in the other process alone"


@pytest.mark.slow
def test_an_audit_makes_the_asset_and_every_command_includes_it(built: Workspace, site: Path) -> None:
    audit = ("audit", "--model", "one", "--benchmark", "made_8")
    assert "auditing one on made_8" in command(site, *audit)
    [found] = built.query("SELECT count(*) AS n, min(detector) AS detector FROM current_group_means")
    assert (found["n"] > 0, found["detector"]) == (True, "loss")
    lineage = built.query(
        "SELECT asset_key, upstream_data_versions FROM lineage WHERE \"table\" = 'group_means' LIMIT 1"
    )
    assert lineage[0]["asset_key"] == "group_means"
    assert "scores/made_8|one" in str(lineage[0]["upstream_data_versions"])
    [comment] = built.query("SELECT comment FROM duckdb_tables() WHERE table_name = 'group_means'")
    assert str(comment["comment"]).startswith("the mean score of every group of texts, by one detector")
    page = model_page_path(built.paths.reports, "one").read_text(encoding="utf-8")
    assert "Groups with the highest scores" in page
    assert "everything is up to date" in command(site, *audit)

    # Other options: the same stage is made again, and nothing else.
    built.write_config("stages", {"group_means": {"fewest_texts": 2}})
    [plan] = json.loads(command_with(site, *audit, "--dry-run", "--json").stdout)["plans"]
    assert plan["because"] == "the options of the group means changed afterwards"
    command(site, *audit)
    runs = "SELECT count(DISTINCT run_id) AS n FROM {}"
    assert built.query(runs.format("group_means")) == [{"n": 2}]
    assert built.query(runs.format("scores")) == [{"n": 1}]
    assert built.query("SELECT status FROM coverage WHERE (model, benchmark) = ('one', 'made_8')") == [
        {"status": "done"}
    ]

    # A damaged file is named, and made again; what is forgotten is gone.
    [file, *_] = sorted(built.paths.table("group_means").rglob("*.parquet"))
    file.write_bytes(b"half")
    doctor = command_with(site, "doctor", "--deep")
    assert doctor.returncode != 0
    assert str(file) in doctor.stdout + doctor.stderr
    command(site, "forget", "--model", "one")
    assert not list(built.paths.root.rglob("group_means/**/*.parquet"))


def test_an_asset_with_other_partitions_than_its_job_is_skipped(site: Path) -> None:
    module = site / "group_means_example" / "asset.py"
    module.write_text(module.read_text().replace("partitions=PAIR,", 'partitions=("benchmark",),'), encoding="utf-8")
    keys = "sorted(key.to_user_string() for key in d.resolve_asset_graph().get_all_asset_keys())"
    done = run_with(site, "-c", f"{DEFINITIONS}print(*{keys})", PYTHONWARNINGS="default")
    assert done.returncode == 0, done.stderr
    assert "scores" in done.stdout.split()
    assert "group_means" not in done.stdout.split()
    [line] = [line for line in done.stderr.splitlines() if "is skipped" in line]
    assert "(its partitions are ('benchmark',), but its job audit_pairs has the partitions" in line
