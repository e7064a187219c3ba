"""An audit of the embedded model, from dated documents to the report."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from made_workspace import (
    NEW,
    OLD,
    Workspace,
    count_loads,
    enter_workspace,
    made_document,
    made_text,
    make_workspace,
    quick_folder,
    temporal,
)

from audit_pipeline.benchmarks.built_benchmark import read_built
from audit_pipeline.detectors.registry import REGISTRY
from audit_pipeline.models.config import load_models
from audit_pipeline.statistics.claims import CLAIM_IN_WORDS, VERDICT_IN_WORDS
from audit_pipeline.store.paths import PROJECT_ROOT

pytestmark = pytest.mark.slow

MODEL, BENCHMARK = "smollm2-135m", "mini_32"
HOSTILE = "<script>alert('owned')</script>"


def documents() -> Iterator[Any]:
    """Yield four documents per side in each of two collections, each with markup and one window long."""
    for collection in ("alder", "birch"):
        for published in (OLD, NEW):
            for number in range(4):
                words = made_text(f"{collection} {published} {number}", 31)
                yield made_document(collection, f"{published.year}-{number}", published, f"{HOSTILE} {words}")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Result, list[str]]]:
    """Yield the folder of the first audit, its output, and the loaded models."""
    entry = load_models(PROJECT_ROOT / "config")[MODEL].model_dump(mode="json", exclude_none=True)
    with quick_folder(tmp_path_factory.mktemp("real")) as folder:
        with pytest.MonkeyPatch.context() as patch:
            made = make_workspace(folder / "made", patch)
            fields = {key: value for key, value in entry.items() if key != "name"}
            made.write_config("models", {"models": {MODEL: fields}})
            made.write_benchmarks(mini=temporal([32], windows_per_document=1))
            made.hold(*documents())
            corpus = made.root / "corpus.txt"
            corpus.write_text("\n".join(document.text for document in documents()), encoding="utf-8")
            entry = {"path": str(corpus), "language": "en", "licence": "CC0-1.0"}
            made.write_config("references", {"references": {"sotu": entry}})
            loads = count_loads(patch)
            result = made.run("audit", "--model", MODEL, "--benchmark", "mini")
        yield made.root, result, loads


@pytest.fixture
def workspace(first: tuple[Path, Result, list[str]], monkeypatch: pytest.MonkeyPatch) -> Workspace:
    return enter_workspace(first[0], monkeypatch)


def test_findings_are_printed_and_stand_in_the_leaderboard(
    first: tuple[Path, Result, list[str]], workspace: Workspace
) -> None:
    _, result, loads = first
    assert result.exit_code == 0, result.output
    assert loads == [MODEL], "loaded once"
    assert f"{BENCHMARK}|{MODEL}: 0 texts from the cache, 16 computed" in result.stderr
    found = workspace.query("SELECT * FROM leaderboard")
    audited = {name for name, one in REGISTRY.items() if not one.on_request}
    assert {row["detector"] for row in found} == audited
    for row in found:
        assert (row["model"], row["benchmark"]) == (MODEL, BENCHMARK)
        if row["detector"] in ("reference", "error_zone", "recall", "con_recall"):
            assert (row["auroc"], row["n_not_scored"]) == (None, 16), "no reference model, and no text for calibration"
            continue
        assert (row["n_members"], row["n_nonmembers"], row["n_groups"], row["n_not_scored"]) == (8, 8, 16, 0)
        if row["detector"] == "lowercase":
            assert (row["auroc"], row["auroc_low"]) == (0.5, None), "the texts are in lower case: all scores are equal"
            continue
        assert 0 <= row["auroc_low"] <= row["auroc"] <= row["auroc_high"] <= 1
        assert row["claim_level"] == "screening only"
        assert row["blind_auroc"] is None, "not read on so few texts"
        assert f"{row['auroc']:.3f}" in result.stdout


def test_the_report_says_what_may_be_claimed_and_runs_nothing_of_the_texts(workspace: Workspace) -> None:
    assert "screening only" in workspace.paths.report.read_text(encoding="utf-8")
    page = "".join(one.read_text(encoding="utf-8") for one in sorted(workspace.paths.reports.glob("*.html")))
    assert html.escape(CLAIM_IN_WORDS["screening only"]).replace("&#x27;", "&#39;") in page
    assert html.escape(VERDICT_IN_WORDS["undetermined"]).replace("&#x27;", "&#39;") in page
    assert all(name in page for name in (MODEL, BENCHMARK))
    texts = read_built(workspace.paths, BENCHMARK).examples.column("text").to_pylist()
    assert all(text.startswith(HOSTILE) for text in texts)
    assert HOSTILE not in page
    assert "<script" not in page.lower(), "the report needs none either"
    shown = re.sub(r"<[^<>]*>", "", page)
    assert "&lt;script&gt;alert(" in shown, "the texts are quoted, as text, token by token"
    assert "proves" not in page
    for reference in ('src="http', 'href="http', "url(http", "@import"):
        assert reference not in page, "it loads nothing"
