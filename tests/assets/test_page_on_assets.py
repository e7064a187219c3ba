"""docs/adding-an-asset.md: its package works, and its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from installed_example import install, run_with
from made_workspace import Workspace

from audit_pipeline.pipeline.stage import Group
from audit_pipeline.tables import table

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "few_detectors", "no_report")
PAGE = (Path(__file__).parents[2] / "docs" / "adding-an-asset.md").read_text(encoding="utf-8")
QUICK_COMMAND = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from quick import empty_reports, few_detectors, kept_garbage
from quick_dagster import quick_storage
from audit_pipeline.cli import main
with quick_storage(Path(sys.argv.pop())), empty_reports(), few_detectors(), kept_garbage():
    main()
"""
BLOCKS = dict(re.findall(r"^```(python|toml)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.slow
def test_the_asset_of_the_page_is_made_by_an_audit(built: Workspace, tmp_path: Path) -> None:
    package = tmp_path / "typed" / "score_ranges_example"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "asset.py").write_text(BLOCKS["python"], encoding="utf-8")
    (tmp_path / "typed" / "pyproject.toml").write_text(BLOCKS["toml"], encoding="utf-8")
    site = install(tmp_path / "site", example=tmp_path / "typed")
    # The audit then loads no model.
    built.audit("one", "made_8")
    done = run_with(site, "-c", QUICK_COMMAND, "audit", "--model", "one", "--benchmark", "made_8", str(tmp_path))
    assert done.returncode == 0, done.stderr
    [found] = built.query("SELECT count(*) AS n, bool_and(lowest <= highest) AS is_ordered FROM current_score_ranges")
    assert found["n"] > 0
    assert found["is_ordered"]


def test_the_page_names_every_value() -> None:
    values = [*get_args(Group), *get_args(table.PartitionedBy), *get_args(table.Storage), *get_args(table.Order)]
    values += [name for name, value in vars(table).items() if isinstance(value, table.ColumnType)]
    assert [value for value in values if f"`{value}`" not in PAGE] == []
