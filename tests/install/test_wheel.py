"""An installed wheel, far from any checkout: what a user gets who types `pip install`.

The packages that it needs are those of the environment that the tests run in, made visible to a new one; what is
proved first is that the project itself is not among them. Its source distribution is built, a wheel from that, and the
wheel is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tiny_models import save_model

from audit_pipeline.detectors.registry import REGISTRY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path.name for path in (ROOT / "config").glob("*.yaml") if "proposed" not in path.name)


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, its own home, and an empty folder."""

    venv: Path
    home: Path
    wheel: Path
    sdist: Path

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment without any path of the checkout."""
        own = ("PYTHONPATH", "DAGSTER_HOME", "CORPUS_AUDIT_DATA", "CORPUS_AUDIT_CONFIG", "XDG_DATA_HOME")
        env = {name: value for name, value in os.environ.items() if name not in own}
        env |= {"HOME": str(self.home), "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1"}
        program, *arguments = map(str, command)
        return subprocess.run(
            [str(self.venv / "bin" / program), *arguments],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    def corpus_audit(self, *arguments: str | Path, cwd: Path, code: int = 0) -> str:
        """Return the output of the command on both streams."""
        done = self.run("corpus-audit", *arguments, cwd=cwd)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said
        return said


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    venv, dist = folder / "venv", folder / "dist"
    (folder / "home").mkdir()
    run([sys.executable, "-m", "venv", str(venv)])
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), "hatchling"])
    run([python, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(dist)], cwd=ROOT)
    [sdist] = dist.glob("*.tar.gz")
    run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(dist), str(sdist)])
    [wheel] = dist.glob("*.whl")
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)])
    # A path in a .pth file is looked in for packages; the .pth files in it, an editable install's, are not read.
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    own = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (own / "packages_of_the_tests.pth").write_text("\n".join(sorted(packages)))
    return Installed(venv, folder / "home", wheel, sdist)


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_the_project_is_imported_from_the_wheel(installed: Installed, empty: Path) -> None:
    code = (
        "import assets, audit_pipeline, importlib.metadata as m;"
        "print(assets.__file__, audit_pipeline.__file__, m.distribution('corpus-audit').locate_file(''), sep='\\n')"
    )
    done = installed.run("python", "-c", code, cwd=empty)
    places = done.stdout.split()
    assert len(places) == 3, done.stderr
    assert all(Path(place).resolve().is_relative_to(installed.venv.resolve()) for place in places)


def test_the_wheel_holds_the_default_configuration_and_what_the_code_reads(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
        shipped = {
            Path(name).name: wheel.read(name) for name in names if name.startswith("audit_pipeline/shipped/config/")
        }
    assert sorted(shipped) == SHIPPED
    assert all(content == (ROOT / "config" / name).read_bytes() for name, content in shipped.items())
    read = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "audit_pipeline").rglob("*")
        if path.suffix in {".sql", ".j2", ".py"} and "__pycache__" not in path.parts
    ]
    assert set(read) <= set(names)
    assert {
        f"audit_pipeline/shipped/{name}" for name in ("workspace.yaml", "data/README.md", "docs/glossary.md")
    } <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "config/", "data/"))]
    with tarfile.open(installed.sdist) as sdist:
        top = {Path(name).parts[1] for name in sdist.getnames() if len(Path(name).parts) > 1}
    assert {"config", "tests", "docs", "constraints.txt", "workspace.yaml", "README.md", "LICENSE"} <= top


def test_every_command_works_in_an_empty_folder(installed: Installed, empty: Path, tmp_path: Path) -> None:
    data = installed.home / ".local" / "share" / "corpus-audit"
    assert "smollm2-135m" in installed.corpus_audit("models", cwd=empty)
    assert "sotu_32" in installed.corpus_audit("benchmarks", cwd=empty)
    examined = installed.run("corpus-audit", "doctor", cwd=empty).stdout
    assert str(data) in examined
    assert "audit_pipeline/shipped/config" in examined
    assert "corpus-audit init" in examined
    assert "does not exist yet" in installed.corpus_audit("sql", "SELECT 1", cwd=empty, code=2)
    told = installed.corpus_audit("audit", "--model", "smolm2-135m", "--benchmark", "sotu_32", cwd=empty, code=2)
    assert "did you mean smollm2-135m?" in told
    assert "corpus-audit init" in told
    model = save_model(tmp_path / "tiny")
    said = installed.corpus_audit("audit", "--model", model, "--benchmark", "sotu_32", cwd=empty)
    assert "min_k_plus_plus" in said
    counted = installed.corpus_audit("sql", "SELECT count(*) AS n FROM leaderboard", "--format", "json", cwd=empty)
    assert json.loads(counted) == {"n": sum(not one.on_request for one in REGISTRY.values())}
    assert (data / "reports" / "contamination_report.html").is_file()
    assert list(empty.iterdir()) == [], "nothing is written where nobody asked for it"


def test_a_workspace_is_laid_out_and_used(installed: Installed, empty: Path) -> None:
    said = installed.corpus_audit("init", "mine", cwd=empty)
    assert "cd mine" in said
    workspace, below = empty / "mine", empty / "mine" / "below"
    below.mkdir()
    models = workspace / "config" / "models.yaml"
    models.write_text(models.read_text() + "\n  added: {hub: a/b, dtyp: float32}\n")
    line = len(models.read_text().splitlines())
    told = installed.corpus_audit("models", cwd=below)
    assert f"{models}:{line}: model added: unknown key 'dtyp'; did you mean dtype?" in told
    examined = installed.run("corpus-audit", "doctor", cwd=below).stdout
    assert str(workspace / "data") in examined
    assert "shipped" not in examined


def test_own_files_are_checked_without_a_checkout(installed: Installed, empty: Path, tmp_path: Path) -> None:
    (empty / "books").mkdir()
    (empty / "books" / "one.txt").write_text("The lanterns were lit before the carriage came down the hill. " * 20)
    model = save_model(tmp_path / "tiny")
    given = ("check", "books", "--model", model, "--no-open")
    assert "To run: " in installed.corpus_audit(*given, "--dry-run", cwd=empty)
    said = installed.corpus_audit(*given, cwd=empty)
    assert f"cd {empty}/corpus-audit-check && corpus-audit dev --weekly" in said
    assert (empty / "corpus-audit-check" / "data" / "reports" / "contamination_report.html").is_file()
    below = installed.corpus_audit("benchmarks", cwd=empty / "corpus-audit-check" / "config")
    assert "own_files_64" in below
    assert "release_notes" not in below


def test_a_pack_is_verified_with_nothing_but_the_wheel(installed: Installed, empty: Path, tmp_path: Path) -> None:
    model = save_model(tmp_path / "tiny")
    given = ("--model", model, "--benchmark", "sotu_32")
    maker, expert = (replace(installed, home=tmp_path / name) for name in ("maker", "expert"))
    for one in (maker, expert):
        one.home.mkdir()
    assert "no timestamp" in maker.corpus_audit("seal", *given, cwd=empty)
    maker.corpus_audit("audit", *given, cwd=empty)
    assert "To check it" in maker.corpus_audit("pack", *given, "--out", "finding.zip", cwd=empty)
    pack = (empty / "finding.zip").rename(expert.home / "finding.zip")
    shutil.rmtree(maker.home)
    model.rename(tmp_path / "elsewhere")
    said = expert.corpus_audit("verify", pack, cwd=empty)
    assert "computed again are equal to the last digit" in said
    content = bytearray(pack.read_bytes())
    content[len(content) // 3] ^= 1
    pack.write_bytes(content)
    assert "!!  files" in expert.corpus_audit("verify", pack, cwd=empty, code=1)


def test_dagster_loads_the_code_location_of_the_installed_workspace_file(installed: Installed, empty: Path) -> None:
    code = "from audit_pipeline.store.paths import workspace_file; print(workspace_file())"
    workspace = installed.run("python", "-c", code, cwd=empty).stdout.strip()
    assert Path(workspace).is_relative_to(installed.venv)
    done = installed.run("python", "-m", "dagster", "definitions", "validate", "-w", workspace, cwd=empty)
    assert done.returncode == 0, done.stdout + done.stderr
