"""What the card says, read by the hub's client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handed_on import built_of, example, write
from huggingface_hub import DatasetCard
from made_workspace import Workspace, made_documents, make_workspace, temporal

from audit_pipeline.benchmarks.built_benchmark import read_built, read_or_assess_split
from audit_pipeline.benchmarks.publish import export

ROWS = [
    example("old words stand here", 1),
    example("new 😀 words stand here", 0, published=None, language="de"),
    example("any words", None, split="calibration"),
]


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


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    workspace = make_workspace(tmp_path / "ours", monkeypatch)
    workspace.write_benchmarks(made=temporal([12], calibration_fraction=0.3))
    workspace.fetch(*made_documents(6, 60))
    workspace.build("made")
    return workspace


def test_the_card_says_how_it_was_built(built: Workspace, tmp_path: Path) -> None:
    """By a benchmark that was drawn from documents, whose split nobody has assessed before."""
    benchmark = read_built(built.paths, "made_12")
    quality = read_or_assess_split(benchmark, built.paths, "run").quality
    export({benchmark: quality}, tmp_path / "out", built.paths, hub=None)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    for said in (
        "member_before 2022-01-01",
        "nonmember_from 2025-01-01",
        "\nLabel source: dates.\n",
        "CC0-1.0",
        "| made_12 | evaluation |",
        benchmark.manifest["content_digest"],
    ):
        assert said in card, said
