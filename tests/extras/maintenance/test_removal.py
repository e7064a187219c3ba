"""Taking a benchmark or a model away: what goes, what stays, what another name shares, and stopping half-way."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from cli_results import LABELLED
from made_workspace import Workspace, made_text, make_workspace
from tiny_models import forward_of

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.benchmarks.stored_split import SPLIT_VERSION, assess_split
from audit_pipeline.errors import DataError
from audit_pipeline.extras.maintenance import forgetting as removal_module
from audit_pipeline.extras.maintenance.forgetting import (
    Removal,
    RemovalTarget,
    execute_removal,
    find_removal,
    list_stored_names,
)
from audit_pipeline.models.converted_files import conversion_folder
from audit_pipeline.models.fingerprint import LENGTH
from audit_pipeline.models.tokenized_model import write_card
from audit_pipeline.pipeline.evaluate_pair import evaluate_pair
from audit_pipeline.scoring.needs.registry import list_derived_texts
from audit_pipeline.scoring.pair_scores import run_passes, score_and_store_pair
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.ledger import LineageStep, read_ledger, record_outcome
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, TABLES, Kind, Pair, Table, text_sha256
from audit_pipeline.tables.common import BENCHMARK, RUN_ID
from audit_pipeline.tables.table import Column
from audit_pipeline.token_statistics.cache import PartCache, discard_rows, write_part

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")
KIND: tuple[Kind, ...] = ("base", "topk", "renyi")


def audit(workspace: Workspace, benchmark: str, model: str) -> None:
    """One pair, as the assets run it."""
    pair, tokenized = Pair(benchmark, model), workspace.model(model)
    write_card(tokenized, workspace.paths)
    run = f"run-{benchmark}-{model}"
    forward = lambda: forward_of(tokenized)  # noqa: E731
    step = LineageStep.now(run, "token_statistics", "1")
    run_passes(pair, tokenized, workspace.paths, forward, step, kinds=KIND, logits_budget=0)
    score_and_store_pair(pair, tokenized, workspace.paths, LineageStep.now(run, "scores", "1"))
    evaluate_pair(pair, tokenized, workspace.paths, LineageStep.now(run, "evaluations", "1"))
    record_outcome(workspace.paths, pair, "scores", "failed", "the device is gone", f"failed-{run}")


def labelled(split: str, words: list[int]) -> dict[str, object]:
    """A family of rows beside the configuration."""
    return {**LABELLED, "path": ".", "split": split, "words": words}


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


def read_tree(paths: DataPaths) -> dict[str, bytes]:
    """Every file and what it holds, but for parts of the cache, the ledger and locks."""
    return {
        str(path.relative_to(paths.root)): path.read_bytes()
        for path in sorted(paths.root.rglob("*"))
        if path.is_file()
        and path.suffix != ".lock"
        and not path.name.startswith("part-")
        and path.parent != paths.ledger
    }


def cached(workspace: Workspace, kind: str, model: str) -> dict[str, dict[str, object]]:
    """The cached rows of a model, by text."""
    folder = workspace.paths.token_statistics(kind, workspace.model(model).identity.model_fingerprint)
    rows = [row for part in folder.glob("part-*.parquet") for row in pq.read_table(part, partitioning=None).to_pylist()]
    return {row["text_sha256"]: row for row in rows}


def texts(workspace: Workspace, benchmark: str) -> set[str]:
    return {text_sha256(text) for text in read_built(workspace.paths, benchmark).examples.column("text").to_pylist()}


def forget(target: RemovalTarget, paths: DataPaths) -> Removal:
    removal = find_removal(target, paths)
    execute_removal(removal, paths)
    return removal


def count_files(removal: Removal) -> dict[str, int]:
    return {row["what"]: row["files"] for row in removal.list_kinds()}


def mentions(paths: DataPaths, *words: str) -> list[Path]:
    """Files and folders whose path names one of ``words`` as a benchmark or a model, or whose content does."""
    return [
        path
        for path in paths.root.rglob("*")
        if any(word in path.name for word in words)
        or (path.suffix in (".json", ".jsonl") and any(word in path.read_text() for word in words))
    ]


MADE_8, ONE = RemovalTarget("benchmark", "made_8"), RemovalTarget("model", "one")


def test_a_benchmark_goes_with_its_own_texts_and_leaves_shared_ones(workspace: Workspace) -> None:
    paths = workspace.paths
    own = texts(workspace, "made_8") - texts(workspace, "twin_8") - texts(workspace, "made_12")
    stay = texts(workspace, "twin_8") | texts(workspace, "made_12")
    shared = texts(workspace, "made_8") & stay
    assert (len(own), len(shared)) == (8, 4)
    before = {(kind, model): cached(workspace, kind, model) for kind in KIND for model in ("one", "two")}
    untouched = {name: held for name, held in read_tree(paths).items() if "made_8" not in name}
    lines = read_ledger(paths).lines

    removal = find_removal(MADE_8, paths)
    rows = read_built(paths, "made_8").examples.column("text").to_pylist()
    copies = {text_sha256(copy) for copy in list_derived_texts([text for text in rows if text_sha256(text) in own])}
    assert removal.texts == own | copies
    assert any("which other benchmarks also contain" in line for line in removal.kept)
    assert read_tree(paths).items() >= untouched.items(), "looking changes nothing"
    counted = count_files(removal)
    assert [counted[table] for table in ("scores", "evaluations", "split_quality", "examples")] == [2, 2, 1, 2]
    execute_removal(removal, paths)

    for (kind, model), rows in before.items():
        after = cached(workspace, kind, model)
        assert set(after) == stay
        assert all(after[text] == rows[text] for text in stay)
    assert not mentions(paths, "made_8")
    assert read_tree(paths) == untouched
    ledger = read_ledger(paths)
    assert (ledger.problems, ledger.forgotten_count) == ([], len(removal.lines))
    assert [line.digest for line in ledger.lines] == [line.digest for line in lines], "forgotten lines keep their place"
    assert {outcome.pair.benchmark for outcome in ledger.outcomes} == {"made_12", "twin_8"}
    assert list_stored_names("benchmark", paths) == {"made_12", "twin_8"}
    assert list_stored_names("model", paths) == {"one", "two"}


def test_a_model_goes_with_its_caches_card_and_history(workspace: Workspace) -> None:
    paths = workspace.paths
    fingerprint = workspace.model("one").identity.model_fingerprint
    (paths.token_statistics("topk", fingerprint) / "part-1.unreadable").write_bytes(b"damaged")
    of_two = {kind: cached(workspace, kind, "two") for kind in KIND}
    removal = forget(ONE, paths)
    assert {"token statistics", "cards", "scores", "evaluations"} <= {
        what for what, files in removal.files.items() if files
    }
    assert not mentions(paths, "%7Cone", "|one", fingerprint)
    assert {kind: cached(workspace, kind, "two") for kind in KIND} == of_two
    assert list_stored_names("model", paths) == {"two"}
    assert list_stored_names("benchmark", paths) == {"made_8", "made_12", "twin_8"}


def test_two_names_of_one_model_share_its_caches_until_the_last_goes(workspace: Workspace) -> None:
    paths = workspace.paths
    entries = yaml.safe_load((workspace.config / "models.yaml").read_text())["models"]
    workspace.write_models(**entries, alias=entries["one"])
    audit(workspace, "made_8", "alias")
    fingerprint = workspace.model("one").identity.model_fingerprint
    assert read_json(paths.model_card(fingerprint))["name"] == "alias"
    rows = cached(workspace, "base", "one")
    removal = forget(RemovalTarget("model", "alias"), paths)
    assert removal.kept == [f"token statistics and card of {fingerprint}, which one also uses"]
    assert cached(workspace, "base", "one") == rows
    assert read_json(paths.model_card(fingerprint))["name"] == "one", "no card has the removed name"
    assert list_stored_names("model", paths) == {"one", "two"}
    forget(ONE, paths)
    assert not paths.token_statistics("base", fingerprint).exists()
    assert not paths.model_card(fingerprint).exists()


def test_what_is_kept_of_models_goes_with_the_last_that_uses_it(workspace: Workspace) -> None:
    paths = workspace.paths
    models = {name: workspace.model(name) for name in ("one", "two")}
    for model in models.values():
        write_card(model, paths)
        for division in (None, "tensor_parallel=2"):
            write_json(paths.load_check(model.identity.model_fingerprint, division), {})
        write_json(conversion_folder(str(model.identity.weights_digest), paths) / "form" / "kept.json", {})
    own, other = (models[name].identity for name in ("one", "two"))
    same_tokenizer = own.tokenizer_fingerprint == other.tokenizer_fingerprint
    forget(ONE, paths)
    assert not conversion_folder(str(own.weights_digest), paths).exists()
    assert not paths.load_checks(own.model_fingerprint)
    assert paths.kept_tokenizers(own.tokenizer_fingerprint).exists() == same_tokenizer
    assert conversion_folder(str(other.weights_digest), paths).exists()
    assert len(paths.load_checks(other.model_fingerprint)) == 2
    forget(RemovalTarget("model", "two"), paths)
    assert not paths.kept_tokenizers(other.tokenizer_fingerprint).exists()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.parametrize("target", [MADE_8, ONE], ids=str)
def test_a_removal_that_is_killed_anywhere_is_finished_by_the_next(
    workspace: Workspace, target: RemovalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_files, steps = removal_module._remove_files, 0
    lines = find_removal(target, workspace.paths).lines

    def count_down(files: Iterable[Path], paths: DataPaths) -> None:
        nonlocal steps
        for file in files:
            if steps == 0:
                raise Killed
            steps -= 1
            remove_files([file], paths)

    monkeypatch.setattr(removal_module, "_remove_files", count_down)
    whole = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "whole"))
    steps = 10_000
    forget(target, whole)
    removed, expected = 10_000 - steps, describe_state(whole)
    assert removed > 10
    for number in range(removed):
        data = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "killed"))
        steps = number
        with pytest.raises(Killed):
            forget(target, data)
        assert target.name in list_stored_names(target.dimension, data)
        steps = 10_000
        assert forget(target, data).lines == lines
        assert describe_state(data) == expected, f"killed after {number} steps"
        assert not mentions(data, target.name if target == MADE_8 else "%7Cone")
        shutil.rmtree(data.root)


def describe_state(paths: DataPaths) -> object:
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


def test_damaged_parts_and_files_of_dead_writers_go_with_a_benchmark_and_living_ones_stay(workspace: Workspace) -> None:
    [*_, part] = workspace.parts()
    damaged = part.with_name(f"part-0-{'0' * 32}.parquet")
    damaged.write_bytes(part.read_bytes()[:-9])
    dead, living = part.with_name(".part-1.parquet.a.tmp"), part.with_name(".part-2.parquet.b.tmp")
    for path in (dead, living):
        path.write_bytes(b"half a part")
    two_hours_ago = time.time() - 7200
    os.utime(dead, (two_hours_ago, two_hours_ago))
    forget(MADE_8, workspace.paths)
    assert [path.exists() for path in (damaged, damaged.with_suffix(".unreadable"), dead, living)] == [
        *(False, False, False, True)
    ]


def test_a_file_that_decides_and_cannot_be_read_stops_it_before_anything_goes(workspace: Workspace) -> None:
    paths = workspace.paths
    paths.examples("twin_8").write_bytes(b"no Parquet")
    before = read_tree(paths)
    with pytest.raises(DataError, match=r"examples\.parquet is unreadable .* It determines what is removed"):
        forget(MADE_8, paths)
    paths.model_card("0" * LENGTH).write_text("{")
    with pytest.raises(DataError, match=r"0000\.json is unreadable"):
        forget(ONE, paths)
    paths.model_card("0" * LENGTH).unlink()
    assert read_tree(paths) == before


def test_a_declaration_is_all_that_a_new_table_needs_to_be_forgotten(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of findings, one of benchmarks that holds texts of its own, and one that has nothing to do with it."""
    paths, step = workspace.paths, LineageStep.now("run", "made", "1")
    columns = (BENCHMARK, Column("text", pa.string(), "a text"), RUN_ID)
    of_pairs = Table("of_pairs", "made up", columns=columns, key=("run_id",), partitioned_by="pair", storage="runs")
    of_texts = Table(
        "of_texts",
        "made up",
        columns=columns,
        key=("run_id",),
        partitioned_by="benchmark",
        storage="rewritten",
        text_columns=("text",),
    )
    of_sources = Table(
        "of_sources", "made up", columns=columns, key=("run_id",), partitioned_by="source", storage="rewritten"
    )
    for table in (of_pairs, of_texts, of_sources):
        monkeypatch.setitem(TABLES._tables, table.name, table)

    def write(table: Table, partition: str | Pair, text: str) -> None:
        rows = pa.table({"benchmark": ["made_8"], "text": [text], "run_id": ["run"]})
        store.write(paths, step, table, partition, rows, upstream={})

    [further, shared] = sorted(texts(workspace, "made_12"))[:2]
    (words,) = (row for row in read_built(paths, "made_12").examples["text"].to_pylist() if text_sha256(row) == shared)
    for pair in (Pair("made_8", "one"), Pair("made_12", "one")):
        write(of_pairs, pair, "x")
    write(of_texts, "made_8", "only here")
    write(of_texts, "twin_8", words)
    write(of_sources, "made_8", "x")
    removal = find_removal(RemovalTarget("benchmark", "made_12"), paths)
    assert further in removal.texts
    assert shared not in removal.texts, "another benchmark's new table holds it"
    assert text_sha256("only here") in find_removal(MADE_8, paths).texts
    counted = count_files(find_removal(MADE_8, paths))
    assert (counted["of_pairs"], counted["of_texts"]) == (1, 1)
    forget(MADE_8, paths)
    assert {path.name for path in mentions(paths, "made_8")} == {"source=made_8", "000001.jsonl"}
    assert [name for name, _ in store.iterate_partitions(paths, of_pairs)] == ["made_12|one"]


def test_a_benchmark_that_was_never_built_has_nothing(workspace: Workspace) -> None:
    assert find_removal(RemovalTarget("benchmark", "nowhere"), workspace.paths).list_kinds() == []
    assert forget(RemovalTarget("model", "nobody"), workspace.paths).list_kinds() == []


# The cache's own part of it.


def part_of(folder: Path, *texts_: str, number: int) -> Path:
    rows = [
        {"key": f"key of {text}", "text_sha256": text, "vocab_size": 1, "logits": text.encode() * 100}
        for text in texts_
    ]
    return write_part(folder, pa.Table.from_pylist(rows, schema=KINDS["logits"].table.schema), number)


def held(folder: Path) -> list[str]:
    return sorted(
        text
        for part in folder.glob("part-*.parquet")
        for text in pq.read_table(part, partitioning=None).column("text_sha256").to_pylist()
    )


def test_rows_are_discarded_by_text_from_every_part(tmp_path: Path) -> None:
    mixed = part_of(tmp_path, "a", "b", "c", number=1)
    whole = part_of(tmp_path, "a", number=2)
    other = part_of(tmp_path, "d", number=3)
    untouched = other.stat()
    discard_rows(tmp_path, {"a", "zz"})
    assert held(tmp_path) == ["b", "c", "d"]
    assert not mixed.exists()
    assert not whole.exists()
    assert (other.stat().st_mtime_ns, other.stat().st_ino) == (untouched.st_mtime_ns, untouched.st_ino)


def test_a_kill_between_the_new_part_and_the_old_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = part_of(tmp_path, "a", "b", number=1)

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
    part_of(tmp_path, "a", "b", number=1)
    part_of(tmp_path, "c", number=2)
    reader = PartCache(tmp_path, KINDS["logits"].table.schema)
    tables = (table for _, table in reader._read_columns_by_part(reader.schema.names))
    first = next(tables)
    discard_rows(tmp_path, {"a", "c"})
    seen = {text for table in [first, *tables] for text in table.column("text_sha256").to_pylist()}
    assert "b" in seen
    assert not reader.unreadable
