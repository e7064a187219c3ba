"""Storage of fetched documents and their manifest."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_lines import step_of
from made_settings import source_settings
from profiles import max_examples

from audit_pipeline.errors import SourceError
from audit_pipeline.sources.base import Document, FetchedDocuments, LeftOut, MissingPart
from audit_pipeline.sources.books.source import BooksSettings
from audit_pipeline.sources.config import all_sources, require_source
from audit_pipeline.sources.local_files import LocalFilesSettings
from audit_pipeline.sources.patents.source import PatentsSettings
from audit_pipeline.sources.release_notes import ReleaseNotesSettings
from audit_pipeline.sources.store import SourceReport, read_settings_digest, refresh_source, store_documents
from audit_pipeline.store.files import read_json
from audit_pipeline.store.paths import DataPaths
from audit_pipeline.store.store import compute_documents_version, read_documents
from audit_pipeline.tables import DOCUMENTS, text_sha256

DAY_1, DAY_2 = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)


COMMON = {"published": date(2020, 1, 1), "language": "en", "licence": "CC0-1.0", "url": "https://example.invalid"}


def document(collection: str, name: str, text: str = "words") -> Document:
    return Document(collection=collection, name=name, title=f"{collection} {name}", text=text, **COMMON)  # type: ignore[arg-type]


@pytest.fixture
def paths(tmp_path: Path) -> DataPaths:
    return DataPaths(tmp_path / "data")


def held(table: pa.Table) -> dict[str, tuple[str, str]]:
    return {row["document_id"]: (row["text"], row["run_id"]) for row in table.to_pylist()}


def store_first_documents(paths: DataPaths) -> SourceReport:
    documents = (document("a", "1"), document("a", "2"), document("b", "1"), document("b", "2"), document("c", "1"))
    return store_documents("demo", FetchedDocuments(documents), paths, step_of("run-1"), DAY_1)


def test_table_and_manifest_of_a_whole_fetch(paths: DataPaths) -> None:
    report = store_first_documents(paths)
    table = read_documents(paths, "demo")
    assert table.schema.equals(DOCUMENTS.schema, check_metadata=False)
    assert table.equals(report.table)
    row = table.to_pylist()[0]
    assert row["document_id"] == row["group"] == "demo:a:1"
    assert row["sha256"] == text_sha256("words")
    assert (row["retrieved_at"], row["run_id"], row["source"]) == (DAY_1, "run-1", "demo")
    assert (report.documents, dict(report.by_collection), dict(report.kept)) == (5, {"a": 2, "b": 2, "c": 1}, {})
    assert read_json(paths.source_manifest("demo")) == {
        "settings": None,
        "source_version": 1,
        "source": "demo",
        "data_version": report.data_version,
        "retrieved_at": DAY_1.isoformat(),
        "documents": 5,
        "by_collection": {"a": 2, "b": 2, "c": 1},
        "kept_from_earlier": {},
        "missing": [],
        "left_out": [],
    }


def test_documents_of_missing_parts_stay_and_others_are_replaced(paths: DataPaths) -> None:
    before = store_first_documents(paths)
    fetched = FetchedDocuments(
        (document("a", "1", "new words"), document("b", "2", "second, changed")),
        (
            MissingPart("b", "the network is down", "b", "1"),
            MissingPart("a", "an older archive"),
            MissingPart("z", "never", "z"),
        ),
    )
    report = store_documents("demo", fetched, paths, step_of("run-2"), DAY_2)
    assert held(read_documents(paths, "demo")) == {
        "demo:a:1": ("new words", "run-2"),
        "demo:b:1": ("words", "run-1"),
        "demo:b:2": ("second, changed", "run-2"),
    }
    retrieved = {row["document_id"]: row["retrieved_at"] for row in report.table.to_pylist()}
    assert (retrieved["demo:b:1"], retrieved["demo:b:2"]) == (DAY_1, DAY_2)
    assert dict(report.kept) == {"b": 1}
    assert report.data_version != before.data_version
    manifest = read_json(paths.source_manifest("demo"))
    assert manifest["kept_from_earlier"] == {"b": 1}
    assert manifest["missing"][0] == {"part": "b", "reason": "the network is down"}


def test_a_source_without_documents_is_an_error(paths: DataPaths) -> None:
    missing = tuple(MissingPart(name, "no network", name) for name in "abcde")
    with pytest.raises(
        SourceError, match=r"demo has no usable document: a: no network; b: no network; .* \(and 2 more\)"
    ):
        store_documents("demo", FetchedDocuments((), missing), paths, step_of("run-1"), DAY_1)
    assert not paths.documents("demo").exists()
    assert not paths.source_manifest("demo").exists()


def test_broken_earlier_documents_do_not_stop_a_fetch(paths: DataPaths) -> None:
    store_first_documents(paths)
    paths.documents("demo").write_bytes(b"broken")
    report = store_documents(
        "demo",
        FetchedDocuments((document("a", "1"),), (MissingPart("b", "gone", "b"),)),
        paths,
        step_of("run-2"),
        DAY_2,
    )
    assert report.documents == 1
    assert [item.part for item in report.missing] == ["b", "documents of earlier fetches"]


def test_the_first_of_several_documents_of_one_name_is_used(paths: DataPaths) -> None:
    report = store_documents(
        "demo", FetchedDocuments((document("a", "1", "x"), document("a", "1", "y"))), paths, step_of("run-1"), DAY_1
    )
    assert held(report.table) == {"demo:a:1": ("x", "run-1")}
    assert report.left_out == (
        LeftOut("demo:a:1", "this document is skipped, because an earlier document has the same name"),
    )


NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True)


@max_examples(40)
@given(names=NAMES, seed=st.integers(0, 1000))
def test_the_version_does_not_depend_on_order_time_and_run(
    names: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    paths = DataPaths(tmp_path_factory.mktemp("data"))
    documents = [document("a", name, f"text of {name}") for name in names]
    first = store_documents("demo", FetchedDocuments(tuple(documents)), paths, step_of("run-1"), DAY_1)
    random.Random(seed).shuffle(documents)
    second = store_documents("demo", FetchedDocuments(tuple(documents)), paths, step_of("run-2"), DAY_2)
    assert second.data_version == first.data_version
    order = list(range(len(names)))
    random.Random(seed + 1).shuffle(order)
    assert compute_documents_version(second.table.take(order)) == first.data_version
    changed = [document("a", names[0], "another text"), *[d for d in documents if d.name != names[0]]]
    assert (
        store_documents("demo", FetchedDocuments(tuple(changed)), paths, step_of("run-3"), DAY_2).data_version
        != first.data_version
    )


def test_the_version_depends_on_date_group_and_language(paths: DataPaths) -> None:
    versions = set()
    for column, value in (
        ("published", None),
        ("published", date(2020, 1, 2)),
        ("earliest", date(2019, 1, 2)),
        ("group", "other"),
        ("language", "fr"),
    ):
        rows = [{**row, column: value} for row in store_first_documents(paths).table.to_pylist()]
        versions.add(compute_documents_version(pa.Table.from_pylist(rows, schema=DOCUMENTS.schema)))
    versions.add(compute_documents_version(store_first_documents(paths).table))
    assert len(versions) == 6


def test_refresh_of_local_files_keeps_a_file_that_broke(tmp_path: Path, paths: DataPaths) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"text": "row one"}\n{"text": "row two"}\n')
    (folder / "page.txt").write_text("a page")
    (folder / "old.txt").write_text("taken away later")
    configured = source_settings(local_files=LocalFilesSettings(path=folder))
    first = refresh_source("local_files", paths, "run-1", configured)
    assert first.documents == 4
    (folder / "rows.jsonl").write_text("{broken")
    (folder / "page.txt").write_text("a page, rewritten")
    (folder / "old.txt").unlink()
    second = refresh_source("local_files", paths, "run-2", configured)
    assert held(second.table) == {
        "local_files:local:page.txt": ("a page, rewritten", "run-2"),
        "local_files:local:rows.jsonl#0": ("row one", "run-1"),
        "local_files:local:rows.jsonl#1": ("row two", "run-1"),
    }
    assert [item.part for item in second.missing] == ["rows.jsonl"]
    with pytest.raises(SourceError, match="has no path"):
        refresh_source("local_files", paths, "run-3", source_settings())


def test_the_registry_has_every_source() -> None:
    assert set(all_sources()) == {"release_notes", "sotu", "local_files", "wikipedia", "patents", "books", "passages"}
    assert all(source.name == name and source.description and source.licence for name, source in all_sources().items())
    sources = "books, local_files, passages, patents, release_notes, sotu, wikipedia"
    with pytest.raises(SourceError, match=f"no source 'rumours'; the sources are: {sources}"):
        require_source("rumours")


def test_documents_are_fetched_again_when_settings_or_version_change(
    paths: DataPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = source_settings()
    assert read_settings_digest("release_notes", paths) != given.digest_for("release_notes")
    fetched = FetchedDocuments((document("a", "1"),))
    store_documents(
        "release_notes", fetched, paths, step_of("run"), DAY_1, settings_digest=given.digest_for("release_notes")
    )
    assert read_settings_digest("release_notes", paths) == given.digest_for("release_notes")
    fewer = source_settings(release_notes=ReleaseNotesSettings(projects=("django",)))
    assert read_settings_digest("release_notes", paths) != fewer.digest_for("release_notes")
    elsewhere = source_settings(local_files=LocalFilesSettings(path=Path("other")))
    assert read_settings_digest("release_notes", paths) == elsewhere.digest_for("release_notes")
    newer = replace(require_source("release_notes"), version=2)
    with monkeypatch.context() as patched:
        patched.setitem(all_sources(), "release_notes", newer)  # type: ignore[arg-type]
        assert read_settings_digest("release_notes", paths) is None
    paths.source_manifest("release_notes").write_text("{")
    assert read_settings_digest("release_notes", paths) != given.digest_for("release_notes")


def test_a_source_is_stale_only_when_its_files_change(tmp_path: Path, paths: DataPaths) -> None:
    folder, other = tmp_path / "pages", tmp_path / "other"
    (folder / "inner").mkdir(parents=True)
    other.mkdir()
    page = folder / "inner" / "page.html"
    page.write_text("a page")
    given = source_settings(patents=PatentsSettings(pages=folder), books=BooksSettings(folder=other))

    def fetched() -> None:
        store_documents(
            "patents",
            FetchedDocuments((document("a", "1"),)),
            paths,
            step_of("run"),
            DAY_1,
            settings_digest=given.digest_for("patents"),
        )

    assert read_settings_digest("patents", paths) != given.digest_for("patents")
    fetched()
    assert read_settings_digest("patents", paths) == given.digest_for("patents")
    page.read_text()
    (other / "book.txt").write_text("another source's")
    (tmp_path / "beside.html").write_text("not inside")
    assert read_settings_digest("patents", paths) == given.digest_for("patents")
    times = page.stat().st_atime_ns, page.stat().st_mtime_ns
    for change, back in (
        (lambda: os.utime(page, ns=(times[0], times[1] + 1)), lambda: os.utime(page, ns=times)),
        (lambda: page.rename(folder / "page.html"), lambda: (folder / "page.html").rename(page)),
        (lambda: (folder / "new.html").write_text("new"), (folder / "new.html").unlink),
    ):
        change()
        assert read_settings_digest("patents", paths) != given.digest_for("patents")
        back()
        assert read_settings_digest("patents", paths) == given.digest_for("patents")
    page.write_text("a page, longer")
    assert read_settings_digest("patents", paths) != given.digest_for("patents")
    fetched()
    assert read_settings_digest("patents", paths) == given.digest_for("patents")
    page.unlink()
    assert read_settings_digest("patents", paths) != given.digest_for("patents")
