"""A data folder in a bucket and its cache on this machine: what is passed on, what is fetched, what a kill leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from s3_server import S3Server

from audit_pipeline.pipeline.publication import build_warehouse
from audit_pipeline.store import bucket_folder
from audit_pipeline.store.bucket_folder import (
    BucketFolder,
    publish_warehouse,
    refetch_damaged_file,
    refresh,
    refresh_warehouse,
    remove,
    remove_folder,
    upload_folder,
)
from audit_pipeline.store.files import write_json, write_table
from audit_pipeline.store.ledger import record_outcome
from audit_pipeline.store.object_store import Bucket, BucketError
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import iterate_partitions
from audit_pipeline.tables import SCORES, Pair
from audit_pipeline.token_statistics.cache import PartCache

Machine = Callable[[str], DataPaths]
SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("text_sha256", pa.string()), pa.field("value", pa.int64())])
KEYS = [f"{number:064d}" for number in range(12)]


def list_names(bucket: Bucket) -> set[str]:
    return {stored.name for stored in bucket.list()}


def open_cache(paths: DataPaths) -> PartCache:
    folder = paths.token_statistics("base", "f" * 8)
    refresh(folder)
    return PartCache(folder, SCHEMA)


def add_rows(paths: DataPaths, first: int, count: int) -> None:
    cache = open_cache(paths)
    for number in range(first, first + count):
        cache.append(pa.table({"key": [KEYS[number]], "text_sha256": [KEYS[number]], "value": [number]}, SCHEMA))
    cache.flush()


def read_values(paths: DataPaths) -> list[int]:
    return sorted(open_cache(paths).read(KEYS).column("value").to_pylist())


def flip_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def test_files_are_passed_on_but_for_those_of_a_machine(machine: Machine, bucket: Bucket, url: str) -> None:
    one = machine("one")
    path = one.run_file("scores", "release_notes_64|owner/a model", "0123")
    write_table(path, pa.table({"value": [1]}))
    for own in (one.digest_cache, one.downloads / "page.json", one.load_check("f"), one.dagster_home / "x.json"):
        write_json(own, {})
    (one.root / "audit.duckdb.lock").touch()
    assert list_names(bucket) == {path.relative_to(one.root).as_posix()}

    two = machine("two")
    assert two.root != one.root
    assert two.run_file("scores", "release_notes_64|owner/a model", "0123").read_bytes() == path.read_bytes()
    assert [two.address, DataPaths(Path("/somewhere")).address] == [url, "/somewhere"]


def test_changes_and_deletions_are_fetched_and_nothing_else(machine: Machine, s3: S3Server) -> None:
    one, two = machine("one"), machine("two")
    for number in range(10):
        write_json(one.model_card(str(number)), {"n": number})
    machine("two")
    write_json(one.model_card("7"), {"n": -7})
    remove(one.model_card("8"))
    s3.requests.clear()
    machine("two")
    assert [path for method, path in s3.requests if method == "GET" and path.endswith(".json")] == [
        "/audits/team/models/7.json"
    ]
    assert two.model_card("7").read_bytes() == one.model_card("7").read_bytes()
    assert len(list(two.model_card("7").parent.glob("*.json"))) == 9
    # What this machine has written is not fetched.
    s3.requests.clear()
    machine("one")
    assert {method for method, path in s3.requests if path.endswith(".json")} == set()


def test_a_command_lists_at_most_every_half_minute(
    machine: Machine, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("one")
    s3.requests.clear()
    for _ in range(5):
        DataPaths.from_environment()
    assert s3.requests == []
    monkeypatch.setattr(bucket_folder, "REFRESH_SECONDS", 0.0)
    DataPaths.from_environment()
    assert s3.requests


def test_a_cache_that_was_deleted_or_half_noted_is_made_again(machine: Machine) -> None:
    one = machine("one")
    for number in range(3):
        write_json(one.model_card(str(number)), {"of": number})
    expected = one.model_card("1").read_bytes()
    notes = one.root / ".objects.jsonl"
    notes.write_bytes(notes.read_bytes()[:-9])
    one.model_card("1").unlink()
    assert machine("one").model_card("1").read_bytes() == expected
    # Of many notes the last of each name stays.
    notes.write_bytes(notes.read_bytes() * 300)
    machine("one")
    assert len(notes.read_bytes().splitlines()) == 3
    shutil.rmtree(one.root)
    bucket_folder._open.clear()
    assert machine("one").model_card("1").read_bytes() == expected


def test_what_changes_while_it_is_fetched_waits_for_the_next_look(machine: Machine, s3: S3Server) -> None:
    one, two = machine("one"), machine("two")
    write_json(one.model_card("m"), {"of": "m"})
    s3.before = lambda method, path: write_again() if method == "GET" and path.endswith("m.json") else None

    def write_again() -> None:
        s3.before = lambda method, path: None
        write_json(one.model_card("m"), {"of": "another"})

    machine("two")
    assert not two.model_card("m").exists()
    machine("two")
    assert two.model_card("m").read_bytes() == one.model_card("m").read_bytes()


def test_the_warehouse_of_the_newer_ledger_counts_whoever_comes_last(machine: Machine, bucket: Bucket) -> None:
    one, two = machine("one"), machine("two")

    def publish(paths: DataPaths, version: str) -> None:
        built = paths.root / "built"
        built.write_text(version)
        publish_warehouse(built, paths.warehouse, version, lambda: built.replace(paths.warehouse))

    publish(one, "000002-000000")
    publish(two, "000001-000000")
    assert list_names(bucket) == {"warehouse/000002-000000.duckdb"}
    for paths in (one, two):
        refresh_warehouse(paths.warehouse)
        assert paths.warehouse.read_text() == "000002-000000"
    publish(two, "000002-000001")
    refresh_warehouse(one.warehouse)
    assert one.warehouse.read_text() == "000002-000001"
    assert list_names(bucket) == {"warehouse/000002-000001.duckdb"}
    remove(one.warehouse)
    refresh_warehouse(two.warehouse)
    assert list_names(bucket) == set()
    assert not two.warehouse.exists()


def test_a_build_reads_what_another_machine_has_written_just_now(machine: Machine, bucket: Bucket) -> None:
    two = machine("two")
    record_outcome(machine("one"), Pair("b", "m"), "scores", "failed", "a reason", "run")
    build_warehouse(two)
    assert [stored.name for stored in bucket.list("warehouse")] == ["warehouse/000001-000000.duckdb"]


def test_a_partition_that_another_machine_has_forgotten_is_none(machine: Machine) -> None:
    one = machine("one")
    path = one.run_file("scores", "b|m", "0123")
    write_table(path, pa.table({"value": [1]}))
    assert [name for name, _ in iterate_partitions(machine("two"), SCORES)] == ["b|m"]
    remove(path)
    assert not list(iterate_partitions(machine("two"), SCORES))


def test_a_kill_before_the_last_note_leaves_no_file_that_others_have_deleted(
    machine: Machine, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine("one")

    def fail(self: object, name: str, content: object) -> None:
        if content:
            raise KeyboardInterrupt
        note(self, name, content)  # type: ignore[arg-type]

    note = BucketFolder._note
    with monkeypatch.context() as patch:
        patch.setattr(BucketFolder, "_note", fail)
        with pytest.raises(KeyboardInterrupt):
            write_json(one.model_card("m"), {})
    assert one.model_card("m").exists()
    bucket.delete(["models/m.json"])
    refresh(one.root)
    assert not one.model_card("m").exists()


def test_damage_is_fetched_again_or_set_aside_where_the_object_is_damaged(machine: Machine, bucket: Bucket) -> None:
    one = machine("one")
    add_rows(one, 0, 3)
    (part,) = one.token_statistics("base", "f" * 8).glob("part-*.parquet")
    damaged = flip_bit(part.read_bytes())
    part.write_bytes(damaged)
    opened = PartCache(part.parent, SCHEMA)
    assert len(opened.read(KEYS)) == 3
    assert opened.unreadable == []

    (name,) = list_names(bucket)
    bucket.write(name, damaged)
    assert open_cache(machine("two")).missing(KEYS) == {*KEYS}
    assert list_names(bucket) == {name.replace(".parquet", ".unreadable")}
    assert not refetch_damaged_file(part)


def test_folders_are_passed_on_and_removed_whole(machine: Machine, bucket: Bucket) -> None:
    one = machine("one")
    folder = one.control_version("c", "1")
    (folder / "exposed").mkdir(parents=True)
    (folder / "exposed" / "model.safetensors").write_bytes(b"weights")
    (folder / "texts.parquet").write_bytes(b"texts")
    upload_folder(folder)
    two = machine("two")
    assert (two.control_version("c", "1") / "exposed" / "model.safetensors").read_bytes() == b"weights"
    remove_folder(two.control_version("c", "1"))
    assert list_names(bucket) == set()
    machine("one")
    assert not (folder / "texts.parquet").exists()


def test_a_cache_is_no_data_folder_of_its_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine("one")
    write_json(one.model_card("m"), {})
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(one.root))
    with pytest.raises(BucketError, match="is a bucket's cache"):
        DataPaths.from_environment()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("s3://nobody-has-this/x", "there is no such bucket"),
        ("http://127.0.0.1/x", "is not a bucket URL"),
        ("s3://", "is not a bucket URL"),
    ],
)
def test_a_wrong_address_is_one_line(
    s3: S3Server, given: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_BUCKET_CACHE", str(tmp_path))
    monkeypatch.setenv("CORPUS_AUDIT_DATA", given)
    with pytest.raises(BucketError, match=message) as error:
        DataPaths.from_environment()
    assert "\n" not in str(error.value)


def test_a_store_that_refuses_is_one_line_without_its_request(machine: Machine, s3: S3Server, bucket: Bucket) -> None:
    one = machine("one")
    s3.before = lambda method, path: 403
    with pytest.raises(BucketError, match="access is refused") as error:
        write_json(one.model_card("m"), {})
    assert "127.0.0.1" not in str(error.value)
    assert not one.model_card("m").exists(), "what the bucket does not have is not here either"
    s3.before = lambda method, path: None
    write_json(one.model_card("m"), {})
    assert list_names(bucket) == {"models/m.json"}


def test_a_store_without_conditional_puts_is_refused(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.require_conditional_put()
    monkeypatch.setattr(Bucket, "write_if_absent", Bucket.write)
    with pytest.raises(BucketError, match="does not know conditional puts"):
        bucket.require_conditional_put()
    assert list_names(bucket) == set()
