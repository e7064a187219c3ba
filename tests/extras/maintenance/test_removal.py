"""The removal of a benchmark or a model: what goes, what stays, what others share, and a kill half-way."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from data_folders import read_tree
from made_workspace import Workspace

from audit_pipeline.benchmarks.built_benchmark import read_built
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
from audit_pipeline.scoring.needs.provider import list_derived_texts
from audit_pipeline.store import store
from audit_pipeline.store.files import read_json, write_json
from audit_pipeline.store.ledger import LineageStep, read_ledger
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import KINDS, TABLES, Kind, Pair, Table, text_sha256
from audit_pipeline.tables.common import BENCHMARK, RUN_ID
from audit_pipeline.tables.table import Column
from audit_pipeline.token_statistics.cache import PartCache, discard_rows, write_part

pytestmark = pytest.mark.usefixtures("one_thread", "quick_audits", "no_report")
KIND: tuple[Kind, ...] = ("base", "topk")


def cached(workspace: Workspace, kind: str, model: str) -> dict[str, dict[str, object]]:
    """Return the cached rows of a model by the sha256 of their text."""
    folder = workspace.paths.token_statistics(kind, workspace.model(model).identity.model_fingerprint)
    rows = [row for part in folder.glob("part-*.parquet") for row in pq.read_table(part, partitioning=None).to_pylist()]
    return {row["text_sha256"]: row for row in rows}


def texts(workspace: Workspace, benchmark: str) -> set[str]:
    return {text_sha256(text) for text in read_built(workspace.paths, benchmark).examples.column("text").to_pylist()}


def forget(target: RemovalTarget, paths: DataPaths) -> Removal:
    removal = find_removal(target, paths)
    execute_removal(removal, paths)
    return removal


def mentions(paths: DataPaths, *words: str) -> list[Path]:
    """Return files and folders whose name, or whose content as JSON, contains a word."""
    return [
        path
        for path in paths.root.rglob("*")
        if any(word in path.name for word in words)
        or (path.suffix in (".json", ".jsonl") and any(word in path.read_text() for word in words))
    ]


MADE_8, TINY = RemovalTarget("benchmark", "made_8"), RemovalTarget("model", "tiny")


def test_a_benchmark_goes_with_the_statistics_of_its_unshared_texts(workspace: Workspace) -> None:
    paths = workspace.paths
    own = texts(workspace, "made_8") - texts(workspace, "twin_8") - texts(workspace, "made_9")
    stay = texts(workspace, "twin_8") | texts(workspace, "made_9")
    shared = texts(workspace, "made_8") & stay
    assert (len(own), len(shared)) == (8, 4)
    before = {(kind, model): cached(workspace, kind, model) for kind in KIND for model in ("tiny", "two")}
    before_removal = read_tree(paths)
    lines = read_ledger(paths).lines

    removal = find_removal(MADE_8, paths)
    rows = read_built(paths, "made_8").examples.column("text").to_pylist()
    copies = {text_sha256(copy) for copy in list_derived_texts([text for text in rows if text_sha256(text) in own])}
    assert removal.texts == own | copies
    assert any("because other benchmarks also contain these texts" in line for line in removal.retained_data)
    assert read_tree(paths) == before_removal, "the search for the data changes nothing"
    counted = {row["what"]: row["files"] for row in removal.list_removed_kinds()}
    assert [counted[table] for table in ("scores", "evaluations", "split_quality", "examples")] == [2, 2, 1, 2]
    execute_removal(removal, paths)

    for (kind, model), rows in before.items():
        after = cached(workspace, kind, model)
        assert set(after) == stay
        assert all(after[text] == rows[text] for text in stay)
    assert not mentions(paths, "made_8")
    after_removal = read_tree(paths)
    for name, content in before_removal.items():
        if "made_8" not in name and not name.startswith((paths.ledger.name, "token_statistics")):
            assert after_removal[name] == content, name
    ledger = read_ledger(paths)
    assert (ledger.problems, ledger.forgotten_count) == ([], len(removal.lines))
    assert [line.digest for line in ledger.lines] == [line.digest for line in lines], "forgotten lines keep their place"
    assert {outcome.pair.benchmark for outcome in ledger.outcomes} == {"made_9", "twin_8"}
    assert list_stored_names("benchmark", paths) == {"made_9", "twin_8"}
    assert list_stored_names("model", paths) == {"tiny", "two"}


def test_a_model_goes_with_its_caches_card_and_history(workspace: Workspace) -> None:
    paths = workspace.paths
    fingerprint = workspace.model("tiny").identity.model_fingerprint
    (paths.token_statistics("topk", fingerprint) / "part-1.unreadable").write_bytes(b"damaged")
    of_two = {kind: cached(workspace, kind, "two") for kind in KIND}
    removal = forget(TINY, paths)
    assert {"token statistics", "cards", "scores", "evaluations"} <= {
        what for what, files in removal.files.items() if files
    }
    assert not mentions(paths, "%7Ctiny", "|tiny", fingerprint)
    assert {kind: cached(workspace, kind, "two") for kind in KIND} == of_two
    assert list_stored_names("model", paths) == {"two"}
    assert list_stored_names("benchmark", paths) == {"made_8", "made_9", "twin_8"}


def test_two_names_of_one_model_share_its_caches_until_the_last_goes(workspace: Workspace) -> None:
    paths = workspace.paths
    entries = yaml.safe_load((workspace.config / "models.yaml").read_text())["models"]
    workspace.write_models(**entries, alias=entries["tiny"])
    workspace.audit("alias", "made_8")
    write_card(workspace.model("alias"), paths)
    fingerprint = workspace.model("tiny").identity.model_fingerprint
    assert read_json(paths.model_card(fingerprint))["name"] == "alias"
    rows = cached(workspace, "base", "tiny")
    removal = forget(RemovalTarget("model", "alias"), paths)
    assert removal.retained_data == [
        f"token statistics and card of the fingerprint {fingerprint}, because it is also the fingerprint of tiny"
    ]
    assert cached(workspace, "base", "tiny") == rows
    assert read_json(paths.model_card(fingerprint))["name"] == "tiny", "no card has the removed name"
    assert list_stored_names("model", paths) == {"tiny", "two"}
    forget(TINY, paths)
    assert not paths.token_statistics("base", fingerprint).exists()
    assert not paths.model_card(fingerprint).exists()


def test_files_of_models_go_with_the_last_model_that_uses_them(workspace: Workspace) -> None:
    paths = workspace.paths
    models = {name: workspace.model(name) for name in ("tiny", "two")}
    for model in models.values():
        write_card(model, paths)
        for division in (None, "tensor_parallel=2"):
            write_json(paths.load_check(model.identity.model_fingerprint, division), {})
        write_json(conversion_folder(str(model.identity.weights_digest), paths) / "form" / "kept.json", {})
    own, other = (models[name].identity for name in ("tiny", "two"))
    same_tokenizer = own.tokenizer_fingerprint == other.tokenizer_fingerprint
    forget(TINY, paths)
    assert not conversion_folder(str(own.weights_digest), paths).exists()
    assert not paths.load_checks(own.model_fingerprint)
    assert paths.stored_tokenizers(own.tokenizer_fingerprint).exists() == same_tokenizer
    assert conversion_folder(str(other.weights_digest), paths).exists()
    assert len(paths.load_checks(other.model_fingerprint)) == 2
    forget(RemovalTarget("model", "two"), paths)
    assert not paths.stored_tokenizers(other.tokenizer_fingerprint).exists()


@pytest.mark.slow
@pytest.mark.parametrize("target", [MADE_8, TINY], ids=str)
def test_the_next_removal_finishes_a_removal_that_was_killed_anywhere(
    workspace: Workspace, target: RemovalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_files, steps = removal_module._remove_files, 0
    lines = find_removal(target, workspace.paths).lines

    def count_down(files: Iterable[Path], paths: DataPaths) -> None:
        nonlocal steps
        for file in files:
            if steps == 0:
                raise KeyboardInterrupt
            steps -= 1
            remove_files([file], paths)

    monkeypatch.setattr(removal_module, "_remove_files", count_down)
    whole = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "whole"))
    steps = 10_000
    forget(target, whole)
    removed, expected = 10_000 - steps, read_tree(whole)
    assert removed > 10
    for number in range(removed):
        data = DataPaths(shutil.copytree(workspace.paths.root, tmp_path / "killed"))
        steps = number
        with pytest.raises(KeyboardInterrupt):
            forget(target, data)
        assert target.name in list_stored_names(target.dimension, data)
        steps = 10_000
        assert forget(target, data).lines == lines
        assert read_tree(data) == expected, f"killed after {number} steps"
        assert not mentions(data, target.name if target == MADE_8 else "%7Ctiny")
        shutil.rmtree(data.root)


def test_damaged_parts_and_files_of_dead_writers_go_with_a_benchmark(workspace: Workspace) -> None:
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


def test_an_unreadable_file_that_determines_the_removal_stops_it(workspace: Workspace) -> None:
    paths = workspace.paths
    paths.examples("twin_8").write_bytes(b"no Parquet")
    before = read_tree(paths)
    with pytest.raises(DataError, match=r"examples\.parquet is unreadable .* but determines which data are removed"):
        forget(MADE_8, paths)
    paths.model_card("0" * LENGTH).write_text("{")
    with pytest.raises(DataError, match=r"0000\.json is unreadable"):
        forget(TINY, paths)
    paths.model_card("0" * LENGTH).unlink()
    assert read_tree(paths) == before


def test_a_new_table_is_forgotten_by_its_declaration_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declare a table of findings, a table of benchmarks with texts, and a table that does not matter."""
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

    [further, shared] = sorted(texts(workspace, "made_9"))[:2]
    (words,) = (row for row in read_built(paths, "made_9").examples["text"].to_pylist() if text_sha256(row) == shared)
    for pair in (Pair("made_8", "tiny"), Pair("made_9", "tiny")):
        write(of_pairs, pair, "x")
    write(of_texts, "made_8", "only here")
    write(of_texts, "twin_8", words)
    write(of_sources, "made_8", "x")
    removal = find_removal(RemovalTarget("benchmark", "made_9"), paths)
    assert further in removal.texts
    assert shared not in removal.texts, "another benchmark's new table holds it"
    assert text_sha256("only here") in find_removal(MADE_8, paths).texts
    counted = {row["what"]: row["files"] for row in find_removal(MADE_8, paths).list_removed_kinds()}
    assert (counted["of_pairs"], counted["of_texts"]) == (1, 1)
    forget(MADE_8, paths)
    assert {path.name for path in mentions(paths, "made_8")} == {"source=made_8", "000001.jsonl"}
    assert [name for name, _ in store.iterate_partitions(paths, of_pairs)] == ["made_9|tiny"]


def test_an_unknown_name_has_no_data(workspace: Workspace) -> None:
    assert find_removal(RemovalTarget("benchmark", "nowhere"), workspace.paths).list_removed_kinds() == []
    assert forget(RemovalTarget("model", "nobody"), workspace.paths).list_removed_kinds() == []


# Rows of the cache.


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


def test_a_kill_between_the_new_and_the_old_part_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = part_of(tmp_path, "a", "b", number=1)

    def killed(path: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            discard_rows(tmp_path, {"a"})
    assert old.exists()
    assert set(held(tmp_path)) == {"a", "b"}
    discard_rows(tmp_path, {"a"})
    assert set(held(tmp_path)) == {"b"}
    assert len(PartCache(tmp_path, KINDS["logits"].table.schema).read({"key of b"})) == 1


def test_an_open_reader_finds_the_rows_in_the_new_part(tmp_path: Path) -> None:
    part_of(tmp_path, "a", "b", number=1)
    part_of(tmp_path, "c", number=2)
    reader = PartCache(tmp_path, KINDS["logits"].table.schema)
    tables = (table for _, table in reader._read_columns_by_part(reader.schema.names))
    first = next(tables)
    discard_rows(tmp_path, {"a", "c"})
    seen = {text for table in [first, *tables] for text in table.column("text_sha256").to_pylist()}
    assert "b" in seen
    assert not reader.unreadable
