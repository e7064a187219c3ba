"""A folder of this machine that is kept like a bucket: what is passed on, what is brought, and what a kill leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from s3_server import S3Server

from audit_pipeline.catalogue import working_copy
from audit_pipeline.catalogue.contracts import SCORES, Pair
from audit_pipeline.catalogue.files import write_json, write_table
from audit_pipeline.catalogue.ledger import LineageStep, list_segments, read_ledger, record_entry
from audit_pipeline.catalogue.object_store import Bucket, BucketError
from audit_pipeline.catalogue.paths import DataPaths
from audit_pipeline.catalogue.working_copy import (
    WorkingCopy,
    data_address,
    fetch_folder_on_demand,
    refetch_damaged_file,
    refresh,
    remove,
    remove_folder,
    upload_folder,
)
from audit_pipeline.token_statistics.cache import PartCache

Machine = Callable[[str], DataPaths]
SCHEMA = pa.schema([pa.field("key", pa.string()), pa.field("text_sha256", pa.string()), pa.field("value", pa.int64())])


def copy_at(paths: DataPaths) -> WorkingCopy:
    copy = working_copy.copy_of(paths.root)
    assert copy is not None
    return copy


def names(bucket: Bucket) -> set[str]:
    return {one.name for one in bucket.objects()}


def a_table(value: int = 1) -> pa.Table:
    return pa.table({"value": [value]})


def files_of(paths: DataPaths) -> set[str]:
    found = (path for path in paths.root.rglob("*") if path.is_file() and copy_at(paths).is_shared(path))
    return {path.relative_to(paths.root).as_posix() for path in found}


def cache(paths: DataPaths) -> PartCache:
    folder = paths.token_statistics("base", "f" * 8)
    fetch_folder_on_demand(folder)
    return PartCache(folder, SCHEMA)


def rows(paths: DataPaths, first: int, count: int) -> None:
    written = cache(paths)
    for number in range(first, first + count):
        written.add(pa.table({"key": [f"{number:064d}"], "text_sha256": [f"{number:064d}"], "value": [number]}, SCHEMA))
    written.flush()


def test_what_one_machine_writes_another_reads(machine: Machine, bucket: Bucket) -> None:
    one = machine("one")
    pair = Pair(model="owner/a model", benchmark="release_notes_64")
    path = one.run_file("scores", pair.partition, "0123")
    write_table(path, a_table())
    assert names(bucket) == {path.relative_to(one.root).as_posix()}

    two = machine("two")
    assert two.root != one.root
    assert two.run_file("scores", pair.partition, "0123").read_bytes() == path.read_bytes()


def test_what_is_this_machines_own_stays_here(machine: Machine, bucket: Bucket) -> None:
    one = machine("one")
    write_json(one.digest_cache, {"a": 1})
    write_json(one.downloads / "page.json", {})
    write_json(one.load_check("f"), {})
    write_json(one.dagster_home / "x.json", {})
    (one.root / "audit.duckdb.lock").touch()
    write_json(one.model_card("f"), {"name": "m"})
    assert names(bucket) == {"models/f.json"}


def test_another_content_and_what_is_deleted_are_brought(machine: Machine, bucket: Bucket) -> None:
    one, two = machine("one"), machine("two")
    for name in ("kept", "changed", "deleted"):
        write_json(machine("one").model_card(name), {"of": name})
    machine("two")
    assert files_of(two) == {f"models/{name}.json" for name in ("kept", "changed", "deleted")}

    one = machine("one")
    write_json(one.model_card("changed"), {"of": "another"})
    remove(one.model_card("deleted"))
    machine("two")
    assert files_of(two) == {"models/changed.json", "models/kept.json"} == files_of(one)
    assert two.model_card("changed").read_bytes() == one.model_card("changed").read_bytes()


def test_lineage_rows_of_two_machines_are_one_chain(machine: Machine, s3: S3Server) -> None:
    one, two = machine("one"), machine("two")
    for number, paths in enumerate([one, two, two, one]):
        step = LineageStep.now(f"run-{number}", "scores", "1")
        s3.requests.clear()
        record_entry(paths, step, SCORES, "b|m", data_version="v", upstream={})
        assert len(s3.requests) <= 12
    refresh(one.root)
    ledger = read_ledger(one)
    assert [entry.run_id for entry in ledger.entries] == [f"run-{number}" for number in range(4)]
    assert ledger.problems == []
    assert [segment.name for segment in list_segments(one.ledger)] == [f"{number:06}.jsonl" for number in range(1, 5)]


def test_only_what_changed_is_fetched(machine: Machine, s3: S3Server) -> None:
    one = machine("one")
    for number in range(30):
        write_json(one.model_card(str(number)), {"n": number})
    machine("two")
    machine("one")
    write_json(one.model_card("7"), {"n": -7})
    s3.requests.clear()
    machine("two")
    fetched = [path for method, path in s3.requests if method == "GET" and path.endswith(".json")]
    assert fetched == ["/audits/team/models/7.json"]


def test_a_command_looks_at_most_every_half_minute(
    machine: Machine, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("one")
    s3.requests.clear()
    for _ in range(5):
        DataPaths.from_environment()
    assert s3.requests == []
    monkeypatch.setattr(working_copy, "REFRESH_SECONDS", 0.0)
    DataPaths.from_environment()
    assert s3.requests


def test_a_file_that_was_edited_here_by_hand_is_the_buckets_again(machine: Machine) -> None:
    one = machine("one")
    write_json(one.model_card("m"), {"of": "m"})
    meant = one.model_card("m").read_bytes()
    one.model_card("m").write_text("{}", encoding="utf-8")
    stray = one.root / "scores" / "partition=x" / "run_id=1.parquet"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"by hand")
    machine("one")
    assert one.model_card("m").read_bytes() == meant
    assert not stray.exists()


def test_a_copy_that_was_removed_is_made_again(machine: Machine) -> None:
    import shutil

    one = machine("one")
    write_json(one.model_card("m"), {"of": "m"})
    before = one.model_card("m").read_bytes()
    shutil.rmtree(one.root)
    working_copy._open.clear()
    assert machine("one").model_card("m").read_bytes() == before


def test_the_copys_own_path_is_the_bucket_too(machine: Machine, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine("one")
    assert data_address(one.root) == url
    assert data_address(Path("/somewhere")) == "/somewhere"
    working_copy._open.clear()
    monkeypatch.setenv("CORPUS_AUDIT_DATA", str(one.root))
    assert copy_at(DataPaths.from_environment()).bucket.url == url


def test_parts_are_brought_when_they_are_asked_for(machine: Machine, s3: S3Server) -> None:
    one = machine("one")
    rows(one, 0, 3)
    two = machine("two")
    assert files_of(two) == set()
    assert sorted(cache(two).read([f"{number:064d}" for number in range(5)]).column("value").to_pylist()) == [0, 1, 2]


def test_compaction_leaves_every_row_to_everybody(machine: Machine, bucket: Bucket) -> None:
    keys = [f"{number:064d}" for number in range(12)]
    rows(machine("one"), 0, 4)
    rows(machine("two"), 4, 4)
    rows(machine("one"), 8, 4)
    two = machine("two")
    cache(two).compact()
    assert len([name for name in names(bucket) if name.endswith(".parquet")]) == 1
    for name in ("one", "two", "three"):
        assert sorted(cache(machine(name)).read(keys).column("value").to_pylist()) == list(range(12)), name


def test_two_machines_compact_at_once(machine: Machine, bucket: Bucket, s3: S3Server) -> None:
    for number in range(6):
        rows(machine("one" if number % 2 else "two"), 2 * number, 2)
    one, two = cache(machine("one")), cache(machine("two"))
    two_begun: list[bool] = []

    def between(method: str, path: str) -> None:
        if method == "DELETE" or (method == "POST" and not two_begun):
            two_begun.append(True)

    s3.before = between
    import threading

    threads = [threading.Thread(target=it.compact) for it in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = cache(machine("three")).read([f"{number:064d}" for number in range(12)])
    assert sorted(found.column("value").to_pylist()) == list(range(12))


def test_a_damaged_file_is_fetched_again(machine: Machine) -> None:
    one = machine("one")
    rows(one, 0, 3)
    (part,) = one.token_statistics("base", "f" * 8).glob("part-*.parquet")
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 4
    part.write_bytes(bytes(content))
    opened = PartCache(part.parent, SCHEMA)
    assert len(opened.read([f"{number:064d}" for number in range(3)])) == 3
    assert opened.unreadable == []


def test_an_object_that_is_damaged_itself_is_set_aside_everywhere(machine: Machine, bucket: Bucket) -> None:
    one = machine("one")
    rows(one, 0, 3)
    (name,) = names(bucket)
    content = bytearray((one.root / name).read_bytes())
    content[len(content) // 2] ^= 4
    bucket.put(name, bytes(content))
    opened = cache(machine("two"))
    assert opened.known([f"{number:064d}" for number in range(3)]) == set()
    assert names(bucket) == {name.replace(".parquet", ".unreadable")}
    assert not refetch_damaged_file(one.root / name)


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
    assert names(bucket) == set()
    machine("one")
    assert not (folder / "texts.parquet").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3://nobody-has-this/x", "there is no such bucket"),
        ("http://127.0.0.1/x", "is not a bucket URL"),
        ("s3://", "is not a bucket URL"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_line(
    s3: S3Server, given: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CORPUS_AUDIT_COPIES", str(tmp_path))
    monkeypatch.setenv("CORPUS_AUDIT_DATA", given)
    with pytest.raises(BucketError, match=said) as error:
        DataPaths.from_environment()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("status", "said"), [(403, "access is refused"), (401, "access is refused")])
def test_a_store_that_refuses_is_one_line_without_its_request(
    machine: Machine, s3: S3Server, status: int, said: str
) -> None:
    one = machine("one")
    s3.before = lambda method, path: status
    with pytest.raises(BucketError, match=said) as error:
        write_json(one.model_card("m"), {})
    assert "127.0.0.1" not in str(error.value)
    assert not one.model_card("m").exists(), "what the bucket does not have is not here either"
    s3.before = lambda method, path: None
    write_json(one.model_card("m"), {})
    assert one.model_card("m").exists()


def test_a_store_that_stumbles_once_is_asked_again(machine: Machine, s3: S3Server, bucket: Bucket) -> None:
    one = machine("one")
    answers = [500, 503]
    s3.before = lambda method, path: answers.pop() if answers else None
    write_json(one.model_card("m"), {})
    assert names(bucket) == {"models/m.json"}
    assert not answers
