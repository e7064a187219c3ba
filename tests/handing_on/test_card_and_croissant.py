"""What the card says and what the metadata lists, checked by those who read them: the hub's client and mlcroissant."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from handed_on import built_of, example, write
from huggingface_hub import DatasetCard
from made_workspace import Workspace, made_documents, make_workspace, temporal

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.handing_on.export import ExportCandidate, export
from audit_pipeline.operate.stages.benchmarks import read_or_assess_quality

ROWS = [
    example("old words stand here", 1),
    example("new 😀 words stand here", 0, published=None, language="de"),
    example("any words", None, split="calibration"),
]


# In a process of its own: what mlcroissant imports keeps hold of the standard error that it finds, and closes it when
# Dagster sets its logging up.
READ = """
import json, sys
import mlcroissant
try:
    data = mlcroissant.Dataset(jsonld=sys.argv[1])
except mlcroissant.ValidationError as error:
    sys.exit(f"ValidationError: {error}")
read = {one.id: [[row[f"{one.id}/text"].decode(), row[f"{one.id}/label"]] for row in data.records(one.id)]
        for one in data.metadata.record_sets}
print(json.dumps({"errors": sorted(map(str, data.metadata.issues.errors)), "read": read}))
"""


def read_by_mlcroissant(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", READ, str(folder / "croissant.json")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def header(folder: Path) -> dict[str, Any]:
    card = DatasetCard.load(folder / "README.md")
    found: dict[str, Any] = card.data.to_dict()
    return found


def test_the_header_is_what_the_hub_reads(tmp_path: Path) -> None:
    write([built_of(ROWS, tmp_path / "data")], tmp_path / "out", hub="maker/made")
    found = header(tmp_path / "out")
    assert found["license"] == "cc0-1.0"
    assert found["language"] == ["de", "en"]
    assert found["size_categories"] == ["n<1K"]
    splits = [{"split": split, "path": f"data/made/{split}.parquet"} for split in ("calibration", "evaluation")]
    assert found["configs"] == [{"config_name": "made", "data_files": splits, "default": True}]


def test_an_unclear_licence_has_a_name_of_its_own(tmp_path: Path) -> None:
    built = built_of(ROWS, tmp_path / "data", provenance=[{"hub": "maker/made", "licence": "as it is"}])
    write([built], tmp_path / "out", with_text=True)
    found = header(tmp_path / "out")
    assert (found["license"], found["license_name"]) == ("other", "as it is")


def test_other_peoples_words_format_nothing(tmp_path: Path) -> None:
    bad = "# <script>alert(1)</script> | **x** [a](javascript:b)\n---\n```"
    built = built_of(ROWS, tmp_path / "data", description=bad, provenance=[{"hub": "a|b", "licence": f"MIT ({bad})"}])
    write([built], tmp_path / "out", with_text=True)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    said = card.split("```yaml")[0].split("\n---\n", 1)[1]
    assert "<script>" not in said
    assert "[a](" not in said
    assert "| a\\|b |" in said
    assert sum(line.startswith("# ") for line in said.splitlines()) == 1, "the title alone"


def test_mlcroissant_finds_no_error_and_reads_every_row(tmp_path: Path) -> None:
    rows = {2: [example("old a"), example("new a", 0)], 3: [example("old a b"), example("new a b", 0)]}
    write([built_of(some, tmp_path / "data", words) for words, some in rows.items()], tmp_path / "out")
    found = read_by_mlcroissant(tmp_path / "out")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {
        "errors": [],
        "read": {f"made_{words}/evaluation": [[row["text"], row["label"]] for row in rows[words]] for words in rows},
    }


def test_mlcroissant_would_find_an_error(tmp_path: Path) -> None:
    write([built_of(ROWS, tmp_path / "data")], tmp_path / "out")
    metadata = json.loads((tmp_path / "out" / "croissant.json").read_text(encoding="utf-8"))
    metadata["recordSet"][0]["field"][0]["source"]["fileObject"]["@id"] = "elsewhere"
    (tmp_path / "out" / "croissant.json").write_text(json.dumps(metadata), encoding="utf-8")
    found = read_by_mlcroissant(tmp_path / "out")
    assert found.returncode == 1
    assert "ValidationError" in found.stderr
    assert "elsewhere" in found.stderr


def test_the_metadata_lists_the_files_as_they_are(tmp_path: Path) -> None:
    write([built_of(ROWS, tmp_path / "data")], tmp_path / "out", hub="maker/made")
    metadata = json.loads((tmp_path / "out" / "croissant.json").read_text(encoding="utf-8"))
    for one in metadata["distribution"]:
        file = (tmp_path / "out" / one["contentUrl"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(file).hexdigest()
        assert one["contentSize"] == f"{len(file)} B"
    assert metadata["license"] == ["CC0-1.0"]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path / "ours", monkeypatch)
    workspace.write_benchmarks(made=temporal([12], calibration_fraction=0.3))
    workspace.fetch(*made_documents(6, 60))
    workspace.build("made")
    return workspace


def test_the_card_says_how_it_was_built(built: Workspace, tmp_path: Path) -> None:
    """By a benchmark that was drawn from documents, whose split nobody has assessed before."""
    one = read_built(built.paths, "made_12")
    quality = read_or_assess_quality(one, built.paths, "run")
    done = export([ExportCandidate(one, quality)], tmp_path / "out", built.paths, hub=None, with_text=False)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    blind = next(row for row in quality.to_pylist() if row["measure"] == "blind_auroc" and row["part"] == "words")
    for said in (
        "members are from before 2022-01-01",
        "non-members are from 2025-01-01 or later",
        "\nLabel source: dates.\n",
        "CC0-1.0 (36 documents)",
        "| made\\_12 | evaluation |",
        "2020-03-01 to 2020-03-01 | 2025-03-01 to 2025-03-01 |",
        f"| made\\_12 | {'not read: ' if blind['value'] is None else format(blind['value'], '.3f')}",
        one.manifest["content_digest"],
    ):
        assert said in card, said
    assert done.digests == {"made_12": one.manifest["content_digest"]}


def test_documents_are_named_where_they_are_those_it_was_built_from(built: Workspace, tmp_path: Path) -> None:
    def titles(out: str) -> set[str | None]:
        one = read_built(built.paths, "made_12")
        ready = [ExportCandidate(one, read_or_assess_quality(one, built.paths, "run"))]
        export(ready, tmp_path / out, built.paths, hub=None, with_text=False)
        from pyarrow.parquet import read_table

        rows = read_table(tmp_path / out / "data" / "made_12" / "evaluation.parquet", partitioning=None).to_pylist()
        assert all((row["title"] is None) == (row["url"] is None) == (row["licence"] is None) for row in rows)
        return {row["title"] for row in rows}

    assert {str(title).split()[0] for title in titles("first")} == {"alder", "birch", "cedar"}
    built.fetch(*made_documents(5, 60))
    assert titles("later") == {None}
