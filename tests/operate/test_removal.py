"""Taking a benchmark or a model away: what goes, what stays, what another name shares, and stopping half-way."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_workspace import Workspace, made_text, make_workspace
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.catalogue import store
from audit_pipeline.catalogue.contracts import KINDS, TABLES, Kind, Pair, Table, text_sha256
from audit_pipeline.catalogue.contracts.common import BENCHMARK, RUN_ID
from audit_pipeline.catalogue.files import read_json, write_json, write_table
from audit_pipeline.catalogue.lineage import LineageStep
from audit_pipeline.catalogue.lineage_chain import follow_chain
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.table import Column
from audit_pipeline.errors import DataError
from audit_pipeline.models.fingerprint import LENGTH
from audit_pipeline.models.kept_files import conversion_folder
from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.operate.removal import (
    RemovalTarget,
    find_removal,
    list_kept_names,
    list_unfinished_removals,
    mark_removal_finished,
    measure_removal,
    remove,
)
from audit_pipeline.operate.removal_files import Gone
from audit_pipeline.operate.stages.benchmarks import SPLIT_VERSION, assess_split
from audit_pipeline.operate.stages.evaluations import evaluate_pair
from audit_pipeline.operate.stages.scores import run_tokens, score_pair
from audit_pipeline.scoring.needs.registry import list_derived_texts
from audit_pipeline.token_statistics import cache
from audit_pipeline.token_statistics.cache import COMPACTION_LOCK, PartCache, discard_rows, measure_rows
from audit_pipeline.token_statistics.tokens import cache_key
from audit_pipeline.warehouse.build import read_lineage_chain

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits")
ROOT = Path(__file__).parents[2]
KIND: tuple[Kind, ...] = ("base", "topk", "renyi")


def audit(workspace: Workspace, benchmark: str, model: str) -> None:
    """One pair, as the assets run it."""
    pair, tokenized = Pair(benchmark, model), workspace.model(model)
    write_card(tokenized, workspace.paths)
    run = f"run-{benchmark}-{model}"
    forward = lambda: forward_of(tokenized)  # noqa: E731
    step = LineageStep.now(run, "token_statistics", "1")
    run_tokens(pair, tokenized, workspace.paths, forward, step, kinds=KIND, logits_budget=0)
    score_pair(pair, tokenized, workspace.paths, LineageStep.now(run, "scores", "1"))
    evaluate_pair(pair, tokenized, workspace.paths, LineageStep.now(run, "evaluations", "1"))
    outcome = pa.table({"model": [model], "benchmark": [benchmark], "at": [datetime.now(UTC)]})
    write_table(workspace.paths.run_file("outcomes", pair.partition, run), outcome)


def labelled(split: str, words: list[int]) -> dict[str, object]:
    """A family of rows beside the configuration."""
    return {
        "builder": "labelled",
        "description": "made up",
        "path": ".",
        "split": split,
        "words": words,
        "design": "temporal",
        "calibration_fraction": 0,
        "seed": 5,
    }


def write_rows(workspace: Workspace, name: str, words: int, numbers: Iterable[int]) -> None:
    rows = [{"input": made_text(f"row {number}", words), "label": number % 2} for number in numbers]
    (workspace.config / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture(scope="module")
def audited_root(
    tmp_path_factory: pytest.TempPathFactory, tiny_folder: Callable[[str], Path], one_thread: None
) -> Path:
    """Two models on three benchmarks; made_8 and twin_8 share four texts of twelve."""
    root = tmp_path_factory.mktemp("forget") / "made"
    with pytest.MonkeyPatch.context() as patch:
        made = make_workspace(root, patch, one=tiny_folder("llama"), two=tiny_folder("gpt_neox"))
        made.write_benchmarks(made=labelled("Made{words}", [8, 12]), twin=labelled("Twin", [8]))
        write_rows(made, "Made8", 8, range(12))
        write_rows(made, "Made12", 12, range(100, 112))
        write_rows(made, "Twin", 8, range(8, 20))
        made.build("made")
        made.build("twin")
        for benchmark in ("made_8", "made_12", "twin_8"):
            assess_split(
                read_built(made.paths, benchmark),
                made.paths,
                LineageStep.now(f"run-{benchmark}", "split_quality", SPLIT_VERSION),
            )
            for model in ("one", "two"):
                audit(made, benchmark, model)
    return root


@pytest.fixture
def workspace(audited_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    copy = Workspace(shutil.copytree(audited_root, tmp_path / "made"), monkeypatch)
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(copy.paths.root))
    monkeypatch.setenv("CORPUS_AUDIT_CONFIG", str(copy.config))
    return copy


def tree(paths: DataPaths) -> dict[str, bytes]:
    """Every file and what it holds; parts of the cache by their rows, because a rewritten one has another name."""
    found = {}
    for path in sorted(paths.root.rglob("*")):
        if path.is_file() and not path.name.startswith("part-"):
            found[str(path.relative_to(paths.root))] = path.read_bytes()
    return found


def cached(workspace: Workspace, kind: str, model: str) -> dict[str, dict[str, object]]:
    """The cached rows of a model, by text."""
    folder = workspace.paths.token_statistics(kind, workspace.model(model).identity.model_fingerprint)
    rows = [row for part in folder.glob("part-*.parquet") for row in pq.read_table(part, partitioning=None).to_pylist()]
    return {row["text_sha256"]: row for row in rows}


def texts(workspace: Workspace, benchmark: str) -> set[str]:
    return {text_sha256(text) for text in read_built(workspace.paths, benchmark).examples.column("text").to_pylist()}


def take(target: RemovalTarget, paths: DataPaths) -> list[Gone]:
    removal = find_removal(target, paths)
    gone = remove(removal)
    mark_removal_finished(removal)
    return gone


def mentions(paths: DataPaths, *words: str) -> list[Path]:
    """Files and folders whose path names one of ``words`` as a benchmark or a model."""
    return [path for path in paths.root.rglob("*") if any(word in path.name for word in words)]


MADE_8, ONE = RemovalTarget("benchmark", "made_8"), RemovalTarget("model", "one")


def test_a_benchmark_goes_with_its_own_texts_and_leaves_shared_ones(workspace: Workspace) -> None:
    paths = workspace.paths
    own = texts(workspace, "made_8") - texts(workspace, "twin_8") - texts(workspace, "made_12")
    stay = texts(workspace, "twin_8") | texts(workspace, "made_12")
    shared = texts(workspace, "made_8") & stay
    assert (len(own), len(shared)) == (8, 4)
    before = {(kind, model): cached(workspace, kind, model) for kind in KIND for model in ("one", "two")}
    untouched = {name: held for name, held in tree(paths).items() if "made_8" not in name}

    removal = find_removal(MADE_8, paths)
    rows = read_built(paths, "made_8").examples.column("text").to_pylist()
    copies = {text_sha256(copy) for copy in list_derived_texts([text for text in rows if text_sha256(text) in own])}
    assert removal.texts == own | copies
    assert any(f"{len(shared)} of its texts" in line for line in removal.kept)
    planned = measure_removal(removal)
    assert tree(paths).items() >= untouched.items(), "looking changes nothing"
    gone = remove(removal)
    mark_removal_finished(removal)

    assert [(one.what, one.files, one.rows) for one in gone] == [(one.what, one.files, one.rows) for one in planned]
    counted = {one.what: one for one in gone}
    # Two models, four kinds with the branches; a run is a file. Token statistics, scores, highlights and eight tables
    # of findings have lineage, and so have the build and the two tables of its assessment.
    assert counted["token statistics"].rows == len(own) * 8
    assert [counted[table].files for table in ("scores", "evaluations", "outcomes")] == [2, 2, 2]
    assert counted["lineage"].files == 2 * 11 + 3
    assert counted["split_quality"].files == 1
    assert counted["split_quality"].rows > 20
    assert (counted["examples and manifest"].files, counted["examples and manifest"].rows) == (2, 12)
    for (kind, model), rows in before.items():
        after = cached(workspace, kind, model)
        assert set(after) == stay
        assert all(after[text] == rows[text] for text in stay)
    assert not mentions(paths, "made_8")
    after_it = {name: held for name, held in tree(paths).items() if not name.endswith(".lock")}
    assert b"made_8" not in after_it.pop("lineage/withdrawn.json")
    assert after_it == {name: held for name, held in untouched.items() if not name.endswith(".lock")}
    assert not list_unfinished_removals(paths)
    assert list_kept_names("benchmark", paths) == {"made_12", "twin_8"}
    assert list_kept_names("model", paths) == {"one", "two"}


def test_forgotten_lineage_rows_are_counted_and_leave_no_name(workspace: Workspace) -> None:
    paths = workspace.paths
    before = follow_chain(*read_lineage_chain(paths))
    assert (before.withdrawn, before.problems) == ({}, ())
    entries = {one.what: one.files for one in take(MADE_8, paths)}["lineage"]
    after = follow_chain(*read_lineage_chain(paths))
    assert (after.linked, after.withdrawn, after.problems) == (before.linked - entries, {"forgotten": entries}, ())
    # A temporary file of a killed writer is no row of the chain.
    [row, *_] = sorted(paths.table("lineage").glob("*made_12%7Cone/*.parquet"))
    shutil.copy(row, row.with_name(f".{row.name}.x.tmp"))
    entries += {one.what: one.files for one in take(ONE, paths)}["lineage"] - 1
    assert follow_chain(*read_lineage_chain(paths)).withdrawn == {"forgotten": entries}
    assert not [file for file in paths.table("lineage").glob("*.json") if b"made_8" in file.read_bytes()]


def test_a_model_goes_with_its_caches_card_and_history(workspace: Workspace) -> None:
    paths = workspace.paths
    fingerprint = workspace.model("one").identity.model_fingerprint
    (paths.token_statistics("base", fingerprint) / ".part-1.parquet.x.tmp").write_bytes(b"half")
    (paths.token_statistics("topk", fingerprint) / "part-1.unreadable").write_bytes(b"damaged")
    of_two = {kind: cached(workspace, kind, "two") for kind in KIND}
    planned = measure_removal(find_removal(ONE, paths))
    gone = take(ONE, paths)
    assert gone == planned
    counted = {one.what: one for one in gone}
    every_text = texts(workspace, "made_8") | texts(workspace, "made_12") | texts(workspace, "twin_8")
    assert counted["token statistics"].rows == 4 * len(every_text)
    assert counted["cards"].files == 1
    assert counted["lineage"].files == 3 * 11
    assert not mentions(paths, "%7Cone", fingerprint)
    assert {kind: cached(workspace, kind, "two") for kind in KIND} == of_two
    assert list_kept_names("model", paths) == {"two"}
    assert list_kept_names("benchmark", paths) == {"made_8", "made_12", "twin_8"}


def test_two_names_of_one_model_share_its_caches_until_the_last_goes(workspace: Workspace) -> None:
    paths = workspace.paths
    entries = read_models(workspace)
    workspace.write_models(**entries, alias=entries["one"])
    audit(workspace, "made_8", "alias")
    fingerprint = workspace.model("one").identity.model_fingerprint
    assert workspace.model("alias").identity.model_fingerprint == fingerprint
    assert read_json(paths.model_card(fingerprint))["name"] == "alias"
    rows = cached(workspace, "base", "one")

    removal = find_removal(RemovalTarget("model", "alias"), paths)
    assert [line for line in removal.kept if fingerprint in line] == [
        f"token statistics and card of {fingerprint}, which are those of one too"
    ]
    remove(removal)
    mark_removal_finished(removal)
    assert cached(workspace, "base", "one") == rows
    assert read_json(paths.model_card(fingerprint))["name"] == "one", "the removed name stands in no card"
    assert list_kept_names("model", paths) == {"one", "two"}
    take(ONE, paths)
    assert not paths.token_statistics("base", fingerprint).exists()
    assert not paths.model_card(fingerprint).exists()


def read_models(workspace: Workspace) -> dict[str, dict[str, object]]:
    import yaml

    entries: dict[str, dict[str, object]] = yaml.safe_load((workspace.config / "models.yaml").read_text())["models"]
    return entries


def test_a_converted_tokenizer_goes_with_the_last_model_that_uses_it(workspace: Workspace) -> None:
    paths = workspace.paths
    folders = {}
    for name in ("one", "two"):
        tokenizer = workspace.model(name).identity.tokenizer_fingerprint
        folders[name] = paths.kept_tokenizers(tokenizer)
        assert list(folders[name].glob("*/kept.json"))
    shared = folders["one"] == folders["two"]
    take(ONE, paths)
    assert folders["two"].exists()
    assert folders["one"].exists() == shared
    take(RemovalTarget("model", "two"), paths)
    assert not folders["one"].exists()
    assert not folders["two"].exists()


def test_converted_weights_and_checks_go_with_the_last_model_that_uses_them(workspace: Workspace) -> None:
    paths = workspace.paths
    cards = {name: workspace.model(name) for name in ("one", "two")}
    for model in cards.values():
        write_card(model, paths)
        for devices in (None, "auto"):
            write_json(paths.load_check(model.identity.model_fingerprint, devices), {})
        write_json(conversion_folder(model.identity.weights_digest, paths) / "form" / "kept.json", {})
    own, other = (cards[name].identity for name in ("one", "two"))
    assert own.weights_digest != other.weights_digest
    take(ONE, paths)
    assert not conversion_folder(own.weights_digest, paths).exists()
    assert not paths.load_checks(own.model_fingerprint)
    assert conversion_folder(other.weights_digest, paths).exists()
    assert len(paths.load_checks(other.model_fingerprint)) == 2


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("target", [MADE_8, ONE], ids=str)
def test_a_removal_that_is_killed_anywhere_is_finished_by_the_next(
    workspace: Workspace, target: RemovalTarget, tmp_path: Path
) -> None:
    whole = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "whole"))
    steps: list[Path] = []
    removal = find_removal(target, whole)
    remove(removal, steps.append)
    mark_removal_finished(removal)
    expected, chain = state_of(whole), follow_chain(*read_lineage_chain(whole))
    assert chain.problems == ()
    assert len(steps) > 10
    for number in range(len(steps)):
        data = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "killed"))
        left = number

        def count_down(path: Path) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1

        removal = find_removal(target, data)
        with pytest.raises(Killed):
            remove(removal, count_down)
        assert list_unfinished_removals(data) == [target]
        assert target.name in list_kept_names(target.dimension, data)
        take(target, data)
        assert state_of(data) == expected, f"killed after {number} steps"
        assert follow_chain(*read_lineage_chain(data)) == chain
        assert target.name not in list_kept_names(target.dimension, data)
        shutil.rmtree(data.root)


def state_of(paths: DataPaths) -> object:
    """Files and folders, and what the caches hold."""
    rows: set[tuple[str, str]] = set()
    names = set()
    for path in sorted(paths.root.rglob("*")):
        if path.name.startswith("part-"):
            keys = pq.read_table(path, columns=["key"], partitioning=None).column("key").to_pylist()
            rows |= {(str(path.parent.relative_to(paths.root)), key) for key in keys}
        elif path.suffix != ".lock":
            names.add(str(path.relative_to(paths.root)))
    return names, rows


def test_damaged_parts_and_dead_writers_files_go_with_a_benchmark_and_living_ones_stay(workspace: Workspace) -> None:
    [*_, part] = workspace.parts()
    damaged = part.with_name("part-0.parquet")
    damaged.write_bytes(part.read_bytes()[:-9])
    dead, living = part.with_name(".part-1.parquet.a.tmp"), part.with_name(".part-2.parquet.b.tmp")
    for path in (dead, living):
        path.write_bytes(b"half a part")
    two_hours_ago = time.time() - 7200
    os.utime(dead, (two_hours_ago, two_hours_ago))
    gone = {one.what: one for one in take(MADE_8, workspace.paths)}
    assert gone["damaged parts of the cache, which may hold its texts"].files == 2
    assert not damaged.exists()
    assert not damaged.with_suffix(".unreadable").exists()
    assert not dead.exists()
    assert living.exists()


def test_rows_of_scored_files_stay_and_are_told_of(workspace: Workspace) -> None:
    model = workspace.model("one")
    folder = workspace.paths.token_statistics("base", model.identity.model_fingerprint)
    some = next(iter(cached(workspace, "base", "one").values()))
    parts = PartCache(folder, KINDS["base"].table.schema)
    row = {**some, "key": cache_key(model, "a file's", "base"), "text_sha256": "a file's"}
    parts.add(pa.Table.from_pylist([row], parts.schema))
    parts.flush()
    removal = find_removal(MADE_8, workspace.paths)
    assert any(line.startswith("1 cached rows of texts that stand in no benchmark") for line in removal.kept)
    remove(removal)
    assert "a file's" in cached(workspace, "base", "one")


def test_what_decides_and_cannot_be_read_stops_it_before_anything_goes(workspace: Workspace) -> None:
    paths = workspace.paths
    paths.examples("twin_8").write_bytes(b"no Parquet")
    before = tree(paths)
    with pytest.raises(DataError, match=r"examples\.parquet cannot be read, and it decides what may be removed"):
        find_removal(MADE_8, paths)
    paths.model_card("0" * LENGTH).write_text("{")
    with pytest.raises(DataError, match=r"0000\.json cannot be read"):
        find_removal(ONE, paths)
    assert {name: held for name, held in tree(paths).items() if "0000" not in name} == before


def test_a_declaration_is_all_that_a_new_table_needs_to_be_forgotten(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of findings, one of benchmarks that holds texts of its own, and one that has nothing to do with it."""
    paths, step = workspace.paths, LineageStep.now("run", "made", "1")
    text = Column("text", pa.string(), "a text")
    columns = (BENCHMARK, text, RUN_ID)
    of_pairs = Table("of_pairs", "made up", columns=columns, key=("run_id",), per="pair", kept="runs")
    of_texts = Table(
        "of_texts", "made up", columns=columns, key=("run_id",), per="benchmark", kept="rewritten", holds_text=("text",)
    )
    of_sources = Table("of_sources", "made up", columns=columns, key=("run_id",), per="source", kept="rewritten")
    for table in (of_pairs, of_texts, of_sources):
        monkeypatch.setitem(TABLES, table.name, table)  # type: ignore[arg-type]

    def write(table: Table, of: str | Pair, text: str) -> None:
        rows = pa.table({"benchmark": ["made_8"], "text": [text], "run_id": ["run"]})
        store.write(paths, step, table, of, rows, upstream={})

    [further, shared] = sorted(texts(workspace, "made_12"))[:2]
    (words,) = (row for row in read_built(paths, "made_12").examples["text"].to_pylist() if text_sha256(row) == shared)
    for pair in (Pair("made_8", "one"), Pair("made_12", "one")):
        write(of_pairs, pair, "x")
    write(of_texts, "made_8", "only here")
    write(of_texts, "twin_8", words)
    write(of_sources, "made_8", "x")
    assert list_kept_names("benchmark", paths) == {"made_8", "made_12", "twin_8"}

    removal = find_removal(RemovalTarget("benchmark", "made_12"), paths)
    assert further in removal.texts
    assert shared not in removal.texts, "another benchmark's new table holds it"
    assert text_sha256("only here") in find_removal(MADE_8, paths).texts
    gone = {one.what: one.files for one in take(MADE_8, paths)}
    assert (gone["of_pairs"], gone["of_texts"]) == (1, 1)
    assert [path.name for path in mentions(paths, "made_8")] == ["source=made_8", "partition=of_sources%3Amade_8"]
    assert [name for name, _ in store.iterate_partitions(paths, of_pairs)] == ["made_12|one"]


def test_a_benchmark_that_was_never_built_has_nothing(workspace: Workspace) -> None:
    assert measure_removal(find_removal(RemovalTarget("benchmark", "nowhere"), workspace.paths)) == []
    assert take(RemovalTarget("model", "nobody"), workspace.paths) == []


# The cache's own part of it.


def part_of(folder: Path, *texts_: str, name: str) -> Path:
    rows = [
        {"key": f"key of {text}", "text_sha256": text, "vocab_size": 1, "logits": text.encode() * 100}
        for text in texts_
    ]
    write_table(folder / name, pa.Table.from_pylist(rows, schema=KINDS["logits"].table.schema))
    return folder / name


def held(folder: Path) -> list[str]:
    return sorted(
        text
        for part in folder.glob("part-*.parquet")
        for text in pq.read_table(part, partitioning=None).column("text_sha256").to_pylist()
    )


def test_rows_are_discarded_by_text_from_every_part(tmp_path: Path) -> None:
    mixed = part_of(tmp_path, "a", "b", "c", name="part-1.parquet")
    whole = part_of(tmp_path, "a", name="part-2.parquet")
    other = part_of(tmp_path, "d", name="part-3.parquet")
    untouched = other.stat()
    assert measure_rows(tmp_path, {"a", "zz"}).rows == 2
    size = sum(part.stat().st_size for part in tmp_path.glob("part-*.parquet"))
    weight = discard_rows(tmp_path, {"a", "zz"})
    assert held(tmp_path) == ["b", "c", "d"]
    assert not mixed.exists()
    assert not whole.exists()
    assert (other.stat().st_mtime_ns, other.stat().st_ino) == (untouched.st_mtime_ns, untouched.st_ino)
    assert weight.rows == 2
    assert weight.bytes == size - sum(part.stat().st_size for part in tmp_path.glob("part-*.parquet"))
    assert discard_rows(tmp_path, {"a"}) == cache.Weight(0, 0)


def test_every_kind_names_its_texts() -> None:
    assert all("text_sha256" in kind.table.schema.names for kind in KINDS.values())


def test_a_kill_between_the_new_part_and_the_old_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = part_of(tmp_path, "a", "b", name="part-1.parquet")

    def killed(path: Path, missing_ok: bool = False) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(Killed):
            discard_rows(tmp_path, {"a"})
    assert old.exists()
    assert set(held(tmp_path)) == {"a", "b"}
    discard_rows(tmp_path, {"a"})
    assert set(held(tmp_path)) == {"b"}
    assert len(PartCache(tmp_path, KINDS["logits"].table.schema).read({"key of b"})) == 1


def test_a_reader_that_has_begun_finds_the_rows_in_the_new_part(tmp_path: Path) -> None:
    part_of(tmp_path, "a", "b", name="part-1.parquet")
    part_of(tmp_path, "c", name="part-2.parquet")
    reader = PartCache(tmp_path, KINDS["logits"].table.schema)
    tables = (table for _, table in reader._read_columns_by_part(reader.schema.names))
    first = next(tables)
    discard_rows(tmp_path, {"a", "c"})
    seen = {text for table in [first, *tables] for text in table.column("text_sha256").to_pylist()}
    assert "b" in seen
    assert not reader.unreadable


def test_a_compaction_at_work_is_waited_for_and_one_that_does_not_end_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    part_of(tmp_path, "a", name="part-1.parquet")
    monkeypatch.setattr(cache, "LOCK_SECONDS", 0.2)
    with filelock.FileLock(tmp_path / COMPACTION_LOCK), pytest.raises(DataError, match="another process has held"):
        discard_rows(tmp_path, {"a"})
    assert held(tmp_path) == ["a"]
    discard_rows(tmp_path, {"a"})
    assert held(tmp_path) == []
