"""The location of configuration and data: environment, workspace, checkout or package."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_pipeline.errors import DataError
from audit_pipeline.store import paths
from audit_pipeline.store.paths import DataPaths, config_dir, find_workspace, is_shipped, workspace_file

ROOT = Path(__file__).parents[2]
WORKSPACE = (ROOT / "workspace.yaml").read_text(encoding="utf-8")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate an installed package without environment variables, and return the folder of packages."""
    for name in ("CORPUS_AUDIT_CONFIG", "CORPUS_AUDIT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    packages = tmp_path / "site-packages"
    monkeypatch.setattr(paths, "PROJECT_ROOT", packages)
    monkeypatch.setattr(paths, "SHIPPED", packages / "audit_pipeline" / "shipped")
    return packages


def laid_out(folder: Path, content: str = WORKSPACE) -> Path:
    (folder / "config").mkdir(parents=True)
    (folder / "workspace.yaml").write_text(content, encoding="utf-8")
    return folder


def test_an_installed_package_has_its_own_configuration_and_the_users_data_folder(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_workspace() is None
    assert config_dir() == package / "audit_pipeline" / "shipped" / "config"
    assert workspace_file() == package / "audit_pipeline" / "shipped" / "workspace.yaml"
    assert is_shipped(config_dir())
    assert DataPaths.from_environment().root == tmp_path / "home" / "corpus-audit"


def test_the_nearest_workspace_around_the_current_folder_is_used(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = laid_out(tmp_path / "outer")
    inner = laid_out(outer / "somewhere" / "inner")
    below = inner / "below" / "further"
    below.mkdir(parents=True)
    for here, found in ((below, inner), (inner, inner), (outer / "somewhere", outer)):
        monkeypatch.chdir(here)
        assert (config_dir(), DataPaths.from_environment().root) == (found / "config", found / "data")
        assert workspace_file() == found / "workspace.yaml"
        assert not is_shipped(config_dir())


def test_other_projects_and_folders_without_config_are_no_workspace(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out(tmp_path / "other", "load_from:\n  - python_module: somebody.elses\n")
    (laid_out(tmp_path / "bare") / "config").rmdir()
    for name in ("other", "bare"):
        monkeypatch.chdir(tmp_path / name)
        assert find_workspace() is None


def test_the_checkout_is_the_default_workspace(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out(package)
    mine = laid_out(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert (config_dir(), DataPaths.from_environment().root) == (package / "config", package / "data")
    monkeypatch.chdir(mine)
    assert config_dir() == mine / "config"


def test_environment_variables_override_workspaces(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = laid_out(tmp_path / "mine")
    monkeypatch.chdir(mine)
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(tmp_path / "c"))
    assert (config_dir(), DataPaths.from_environment().root) == (tmp_path / "c", mine / "data")
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "d"))
    assert DataPaths.from_environment().root == tmp_path / "d"
    monkeypatch.setenv("CORPUS_AUDIT_DATA", "")
    assert DataPaths.from_environment().root == mine / "data", "an empty variable is none"


def test_this_checkout_is_a_workspace() -> None:
    assert find_workspace() == ROOT


def test_a_data_folder_that_is_a_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_DATA", "s3://acme/audits")
    with pytest.raises(DataError, match=r"CORPUS_AUDIT_DATA=s3://acme/audits is a URL\. Set it to a folder"):
        DataPaths.from_environment()
