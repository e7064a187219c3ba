"""Builds of the warehouse: all rows, their lineage, corrupt files, interrupted builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_data_folder import BENCHMARKS, DAY, MODELS, Folder
from profiles import max_examples
from written import read_all

from audit_pipeline.errors import DataError
from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store.files import write_json, write_table
from audit_pipeline.store.integrity import file_sha256
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.tables import TABLES
from audit_pipeline.tables.sql import EXCERPT, EXCERPT_WORDS, quote_literal
from audit_pipeline.tables.table import Table
from audit_pipeline.warehouse import build
from audit_pipeline.warehouse.query import open_read_only, query_warehouse
from audit_pipeline.warehouse.schema import VIEWS, list_tables

AGAIN = "again-notes"
PAIR = "notes_32|tiny-125m"


def told(warehouse: Path, sql: str) -> list[tuple[object, ...]]:
    with open_read_only(warehouse) as connection:
        rows: list[tuple[object, ...]] = connection.sql(sql).fetchall()
    return rows


def values(paths: DataPaths, sql: str) -> list[tuple[object, ...]]:
    return told(paths.warehouse, sql)


def left_over(paths: DataPaths) -> list[str]:
    return sorted(path.name for path in paths.root.iterdir() if path.name.startswith("audit.duckdb"))


def test_an_empty_folder_has_every_table_and_view_without_rows(folder: Folder) -> None:
    report = build_warehouse(folder.paths)
    asked_for = {
        **{"configured_models": 2, "configured_benchmarks": 2, "model_releases": 2, "coverage": 4, "not_audited": 4},
        "keys": len(list_tables(include_text=True)),
    }
    assert report.rows == {table.name: asked_for.get(table.name, 0) for table in list_tables(include_text=True)}
    assert (report.left_out, report.moved_wal) == ((), None)
    assert report.bytes == folder.paths.warehouse.stat().st_size > 0
    with open_read_only(folder.paths.warehouse) as connection:
        for name in [*report.rows, *(view.name for view in VIEWS)]:
            rows = connection.execute(f"SELECT count(*) FROM {name}").fetchall()
            assert rows == [(asked_for.get(name, 0),)], name


def test_every_parquet_row_is_in_the_warehouse(warehouse: Path) -> None:
    for table in ("scores", "evaluations"):
        written = read_all(DataPaths(warehouse.parent).table(table), TABLES[table])
        with open_read_only(warehouse) as connection:
            stored = connection.table(table).to_arrow_table()
        assert len(stored) == len(written) > 0
        order = [(name, "ascending") for name in written.column_names]
        assert stored.select(written.column_names).sort_by(order).to_pylist() == written.sort_by(order).to_pylist()
    for table, rows in (("documents", 24), ("examples", 120), ("models", 2), ("benchmarks", 2)):
        assert told(warehouse, f"SELECT count(*) FROM {table}") == [(rows,)]


def test_the_warehouse_contains_only_excerpts_of_texts(folder: Folder) -> None:
    secret = " ".join(f"word{index}" for index in range(60))
    folder.write_documents("notes")
    folder.write_examples("notes_32", [secret])
    build_warehouse(folder.paths)
    excerpts = [row[0] for row in values(folder.paths, "SELECT excerpt FROM examples")]
    assert " ".join(secret.split()[:50]) + "…" in excerpts
    assert all(len(str(excerpt).split()) <= EXCERPT_WORDS for excerpt in excerpts)
    assert b"word55" not in folder.paths.warehouse.read_bytes()
    assert values(folder.paths, "SELECT DISTINCT words FROM documents") == [(300,)]

    build_warehouse(folder.paths, include_text=False)
    assert values(folder.paths, "SELECT DISTINCT excerpt FROM examples") == [(None,)]
    assert b"word5" not in folder.paths.warehouse.read_bytes()


def excerpt_of(text: str) -> str:
    with duckdb.connect() as connection:
        sql = f"SELECT {EXCERPT} FROM (SELECT $text::VARCHAR AS text)"
        (found,) = connection.sql(sql, params={"text": text}).fetchall()
    return str(found[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two words", "two words"),
        ("  many\n\n blanks\u3000here\t", "many blanks here"),
        (" ".join(["a"] * 51), " ".join(["a"] * 50) + "…"),
        ("汉" * 51, "汉" * 50 + "…"),
        ("x" * 5000, "x" * 500 + "…"),
        ("", ""),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_excerpts(text: str, expected: str) -> None:
    assert excerpt_of(text) == expected


@max_examples(30)
@given(st.text(st.sampled_from("ab \n\t\u3000\xa0é汉字😀.-"), max_size=400))
def test_an_excerpt_is_a_bounded_start_of_the_text(text: str) -> None:
    excerpt = excerpt_of(text)
    flat = " ".join(text.split())
    begun = excerpt.removesuffix("…")
    assert flat.startswith(begun)
    assert (begun == flat) == (begun == excerpt)
    assert len(re.findall(r"[汉字]|[^\s汉字]+", begun)) <= EXCERPT_WORDS


def test_every_number_joins_to_exactly_one_lineage_row(warehouse: Path) -> None:
    with open_read_only(warehouse) as connection:
        assert len(connection.table("lineage_gaps")) == 0
    assert told(
        warehouse,
        "SELECT (SELECT count(*) FROM findings) - (SELECT count(*) FROM current_evaluations),"
        " count(*) FILTER (asset_key IS NULL OR code_version IS NULL OR model_fingerprint IS NULL"
        " OR benchmark_digest IS NULL OR finished_at IS NULL) FROM findings",
    ) == [(0, 0)]


def test_entries_without_their_file_are_lineage_gaps(audited: Folder) -> None:
    paths = audited.paths
    entry = {"asset_key": "evaluations", "finished": DAY + timedelta(days=1)}
    # Of one step, one after the other; and a last one, whose run may have died there.
    audited.write_lineage("decisions", PAIR, AGAIN, **entry)
    audited.write_lineage("comparisons", PAIR, AGAIN, **{**entry, "finished": DAY + timedelta(days=2)})
    paths.documents("notes").unlink()
    report = build_warehouse(paths)
    with open_read_only(paths.warehouse) as connection:
        gaps = dict(connection.sql('SELECT "table", what FROM lineage_gaps').fetchall())
    either = "an entry without its file: the run died before it was written, or the file was deleted"
    assert gaps == {
        "decisions": "an entry without its file: the file was deleted",
        "comparisons": either,
        "documents": "an entry without its file: the file was deleted",
    }
    assert report.rows["files_gone"] == 3
    # Numbers have their lineage all the same, and reports say nothing of it.
    assert values(paths, "SELECT count(*) FROM lineage_gaps WHERE is_left_out") == [(0,)]


def test_a_file_without_a_ledger_entry_is_reported_and_skipped(audited: Folder) -> None:
    file = audited.paths.run_file("decisions", PAIR, "nobody")
    write_table(file, TABLES["decisions"].empty_table())
    filled = build_warehouse(audited.paths)
    assert filled.unexplained == (file,)
    assert [(left_out.path, left_out.reason) for left_out in filled.left_out] == [
        (file, "the ledger has no entry for the file")
    ]
    assert values(audited.paths, "SELECT count(*) FROM decisions WHERE run_id = 'nobody'") == [(0,)]


def test_a_corrupt_ledger_line_is_no_entry(audited: Folder) -> None:
    content = audited.paths.ledger_file.read_bytes()
    place = content.index(AGAIN.encode())
    audited.paths.ledger_file.write_bytes(content[:place] + b"A" + content[place + 1 :])
    filled = build_warehouse(audited.paths)
    assert [path.stem for path in filled.unexplained] == [f"run_id={AGAIN}"]


def test_the_leaderboard(warehouse: Path) -> None:
    with open_read_only(warehouse) as connection:
        rows = connection.table("leaderboard").to_arrow_table().to_pylist()
        evaluations = connection.table("current_evaluations").to_arrow_table().to_pylist()
    assert len(rows) == len(MODELS) * len(BENCHMARKS) * 4
    assert {row["detector"] for row in rows} == {"loss", "zlib", "min_k", "min_k_plus_plus"}
    assert {row["parameters"] for row in rows} == {"{}", '{"k":0.2}'}
    for row in rows:
        metrics = {
            found["metric"]: found
            for found in evaluations
            if all(found[name] == row[name] for name in ("model", "benchmark", "detector", "parameters"))
        }
        assert row["auroc"] == metrics["auroc"]["value"]
        assert (row["auroc_low"], row["auroc_high"]) == (metrics["auroc"]["ci_low"], metrics["auroc"]["ci_high"])
        assert (row["tpr_at_5_fpr"], row["fpr_at_95_tpr"]) == (0.1, 0.9)
        assert row["n"] == metrics["auroc"]["n_members"] + metrics["auroc"]["n_nonmembers"]
        assert row["blind_auroc"] == 0.55
        assert row["margin"] == pytest.approx(row["auroc"] - 0.55)
        assert (row["split_verdict"], row["claim_level"]) == ("undetermined", "screening only")
    order = [(row["model"], row["benchmark"], not row["is_headline"], -row["auroc"]) for row in rows]
    assert order == sorted(order)


def test_a_pair_without_a_readable_blind_control_stays_on_the_leaderboard(folder: Folder) -> None:
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", "tiny-125m", "run", DAY, blind=None)
    build_warehouse(folder.paths)
    assert values(folder.paths, "SELECT DISTINCT blind_auroc, margin FROM leaderboard") == [(None, None)]


def test_scores_join_their_examples(warehouse: Path) -> None:
    assert told(
        warehouse,
        "SELECT count(*) = (SELECT count(*) FROM current_scores), count(label), count(excerpt), min(words), max(words)"
        " FROM scores_with_examples",
    ) == [(True, 4 * 60 * 22, 4 * 60 * 22, 32, 64)]


def test_token_statistics_have_one_row_per_text(audited: Folder) -> None:
    audited.write_token_statistics("tiny-125m", ["four five", "six"], part="part-1")
    report = build_warehouse(audited.paths)
    assert report.rows["token_statistics"] == 5
    where = f"WHERE model_fingerprint = '{MODELS['tiny-125m']}'"
    rows = values(audited.paths, f"SELECT tokens, mean_logprob FROM token_statistics {where} ORDER BY 1")
    assert rows == [(1, 0.0), (2, -0.5), (3, -1.0)]


def test_cards_and_manifests_may_lack_any_field(folder: Folder) -> None:
    paths = folder.paths
    write_json(paths.model_card("abc"), {"name": "half", "parameters": "135M", "context_length": 2048})
    write_json(paths.digest_cache, {"some/file": "digest"})
    write_json(paths.benchmark_manifest("bare (x)"), {})
    write_json(paths.benchmark_manifest("old"), {"benchmark": "old", "spec": {"design": "temporal", "words": [32, 64]}})
    paths.model_card("broken").write_text("{", encoding="utf-8")
    paths.model_card("list").write_text("[]", encoding="utf-8")
    report = build_warehouse(paths)
    assert values(
        paths, "SELECT fingerprint, name, parameters, context_length, card ->> '$.parameters' FROM models"
    ) == [("abc", "half", None, 2048, "135M")]
    assert values(paths, "SELECT benchmark, digest, design, words FROM benchmarks ORDER BY 1") == [
        ("bare (x)", None, None, None),
        ("old", None, "temporal", "[32, 64]"),
    ]
    assert [entry.path.stem for entry in report.left_out] == ["broken", "list"]


def with_digest(audited: Folder, table: str, partition: str, run_id: str) -> Path:
    """The file of an entry, which names its digest from now on."""
    file = TABLES[table].file_of(audited.paths, partition, run_id)
    assert file is not None
    audited.write_lineage(table, partition, run_id, DAY + timedelta(days=1), file_sha256=file_sha256(file))
    return file


def test_corrupt_files_are_reported_and_skipped(audited: Folder) -> None:
    files = {
        table: with_digest(audited, table, partition, run_id)
        for table, partition, run_id in (
            *(("scores", PAIR, AGAIN), ("evaluations", PAIR, AGAIN)),
            ("examples", "notes_32", "run-examples"),
        )
    }
    whole = build_warehouse(audited.paths)
    assert whole.left_out == ()
    for file in files.values():
        content = bytearray(file.read_bytes())
        # Whose value nobody asks for, and which every reader of Parquet reads without a word.
        content[content.index(b"parquet-cpp")] ^= 1
        file.write_bytes(content)
    report = build_warehouse(audited.paths)
    assert {one.path for one in report.left_out} == {*files.values()}
    assert all("the file is corrupt" in one.reason for one in report.left_out)
    for table, file in files.items():
        assert report.rows[table] == whole.rows[table] - pq.read_metadata(file).num_rows
    where = "WHERE model = 'tiny-125m' AND benchmark = 'notes_32'"
    assert values(audited.paths, f"SELECT DISTINCT run_id FROM current_scores {where}") == [("run-0-notes_32",)]


def test_a_corrupt_part_of_the_cache_is_reported_and_skipped(audited: Folder) -> None:
    audited.write_token_statistics("tiny-125m", ["four five", "six"], part="part-1")
    folder = audited.paths.token_statistics("base", MODELS["tiny-125m"])
    named = folder / "part-1.parquet"
    part = named.rename(folder / f"part-1-{file_sha256(named)[:32]}.parquet")
    assert build_warehouse(audited.paths).rows["token_statistics"] == 5
    content = bytearray(part.read_bytes())
    content[content.index(b"parquet-cpp")] ^= 1
    part.write_bytes(content)
    report = build_warehouse(audited.paths)
    assert [one.path for one in report.left_out] == [part]
    assert report.rows["token_statistics"] == 4, "one of its texts stands in another part too"
    assert part.exists(), "it is set aside by the next audit, which runs its texts again"


def test_the_build_starts_again_if_a_run_replaces_a_file(audited: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    file, times = with_digest(audited, "examples", "notes_32", "run-examples"), []
    load = build.load_parquet

    def while_a_run_writes(connection: duckdb.DuckDBPyConnection, table: Table, files: list[Path]) -> object:
        if table.name == "examples" and len(times) < most:
            times.append(1)
            new = pq.read_table(file, partitioning=None).slice(len(times))
            write_table(file, new)
            with_digest(audited, "examples", "notes_32", "run-examples")
        return load(connection, table, files)

    monkeypatch.setattr(build, "load_parquet", while_a_run_writes)
    most = 1
    report = build_warehouse(audited.paths)
    assert report.left_out == ()
    assert values(audited.paths, "SELECT count(*) FROM examples WHERE benchmark = 'notes_32'") == [(59,)]
    most = 99
    with pytest.raises(DataError, match=r"runs replaced .*examples\.parquet during each of 3 attempts"):
        build_warehouse(audited.paths)
    assert values(audited.paths, "SELECT count(*) FROM examples WHERE benchmark = 'notes_32'") == [(59,)]


def test_a_foreign_wal_is_moved_aside(audited: Folder) -> None:
    paths = audited.paths
    build_warehouse(paths)
    session = f"""
import duckdb, os
connection = duckdb.connect({str(paths.warehouse)!r})
connection.execute("CREATE TABLE mine AS SELECT 1 AS number")
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", session], check=True)
    wal = paths.warehouse.with_name("audit.duckdb.wal")
    written = wal.read_bytes()
    report = build_warehouse(paths)
    assert report.moved_wal is not None
    assert report.moved_wal.read_bytes() == written
    assert re.fullmatch(r"audit\.duckdb\.wal\.\d{8}T\d+Z\.aside", report.moved_wal.name)
    assert not wal.exists()
    assert query_warehouse(paths.warehouse, "SELECT count(*) AS n FROM lineage").to_pylist() == [
        {"n": report.rows["lineage"]}
    ]
    assert build_warehouse(paths).moved_wal is None


def test_a_failed_build_leaves_the_earlier_warehouse(audited: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = audited.paths
    build_warehouse(paths)
    before = paths.warehouse.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left.*earlier warehouse is unchanged"):
        build_warehouse(paths)
    assert paths.warehouse.read_bytes() == before
    assert left_over(paths) == ["audit.duckdb", "audit.duckdb.lock"]


def test_files_of_a_killed_build_are_removed(audited: Folder) -> None:
    paths = audited.paths
    dead = paths.root / "audit.duckdb.dead.building"
    dead.mkdir()
    (dead / "audit.duckdb").write_bytes(b"half")
    build_warehouse(paths)
    assert left_over(paths) == ["audit.duckdb", "audit.duckdb.lock"]


def test_a_build_waits_for_another_build(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr(build, "LOCK_SECONDS", 0.1)
    folder.paths.root.mkdir(parents=True)
    with (
        FileLock(folder.paths.root / "audit.duckdb.lock"),
        pytest.raises(DataError, match="another process has held"),
    ):
        build_warehouse(folder.paths)


def test_special_characters_in_names_and_folders(tmp_path: Path) -> None:
    folder = Folder(DataPaths(tmp_path / "it's [a] 'da*ta' folder"))
    folder.write_examples("notes_32")
    folder.write_audit("notes_32", "small <2b> $x$", "run/1", DAY + timedelta(days=2))
    build_warehouse(folder.paths)
    assert values(
        folder.paths, f"SELECT count(*) FROM leaderboard WHERE model = {quote_literal('small <2b> $x$')}"
    ) == [(4,)]


def test_findings_on_an_earlier_build_of_a_benchmark_are_marked(audited: Folder) -> None:
    build_warehouse(audited.paths)
    statement = "SELECT DISTINCT benchmark, is_current FROM leaderboard ORDER BY ALL"
    before = values(audited.paths, statement)
    assert {current for _, current in before} == {True}
    benchmark = before[0][0]
    audited.change_manifest(benchmark, digest="of another build")
    build_warehouse(audited.paths)
    assert values(audited.paths, statement) == [(name, name != benchmark) for name, _ in before]
